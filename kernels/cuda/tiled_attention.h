#ifndef SYNCLINE_KERNELS_CUDA_TILED_ATTENTION_H_
#define SYNCLINE_KERNELS_CUDA_TILED_ATTENTION_H_

// Attention without its scores in memory: a block has some rows of queries and
// goes along the keys, tile by tile, with a running maximum and sum of each
// row; the gradients compute the weights again from the logarithm of that sum.
// Sources: Milakov and Gimelshein 2018 (the running softmax), Rabe and Staats
// 2021 (attention in constant memory), Dao et al. 2022, FlashAttention (tiles,
// and the gradients: algorithm 4). No two blocks write one place, so the same
// GPU gives the same bits.
//
// In 16 bits, weights and the gradients of scores are rounded to the type of q
// before the products that they are factors of, as tensor cores want; sums are
// float32. The gradient of scores wants the sum over keys of weights times
// their gradients: it is taken from y and dy, so a rounded y is used.

#include <cstdint>
#include <memory>

#include "kernels/cuda/attention_mask.h"
#include "kernels/device/attention_kernels.h"

namespace syncline::cuda {

// Wider heads are computed by products.
inline constexpr int64_t kTiledWidthMax = 128;

// True if MakeTiledAttention takes it: heads of up to kTiledWidthMax, no cap of
// scores, no scores asked for, no gradient of the mask. Masks and causality are
// taken.
bool ServesTiledAttention(const AttentionShape& shape,
                          const AttentionUses& uses);
// REQUIRES: it is served.
std::unique_ptr<AttentionLayer> MakeTiledAttention(const AttentionShape& shape,
                                                   const AttentionUses& uses);

// Reports counts of keys that are out of range.
void CheckKeyCounts(Stream& stream, const AttentionShape& shape,
                    const Attention::Mask& mask, const ErrorSlot& errors);

// The part of a shape that kernels read.
struct TiledShape {
  int heads = 0;  // of a sample
  int group = 1;  // heads of queries that read one of keys
  int64_t batch = 0;
  int64_t queries = 0;
  int64_t keys = 0;
  int width = 0;
  int value_width = 0;
  float scale = 1;
  DType type = DType::kFloat32;
  Attention::Layout q, k, v, y;
  RoundScores scores;
};

// `log_sums`, [batch, heads, queries]: of each row's sum of e^score the
// logarithm, infinite where no key is seen. Null: not wanted.
void TiledForward(Stream& stream, const TiledShape& s, const DeviceMask& mask,
                  ConstFloats q, ConstFloats k, ConstFloats v, Floats y,
                  float* log_sums);

struct TiledGradient {
  ConstFloats q, k, v, dy;
  const float* log_sums = nullptr;
  const float* products = nullptr;  // of each row of y with dy
  AttentionGradients out;
};
// dq, and dk and dv, as far as they are wanted.
void TiledQueryGradient(Stream& stream, const TiledShape& s,
                        const DeviceMask& mask, const TiledGradient& g);
void TiledKeyGradients(Stream& stream, const TiledShape& s,
                       const DeviceMask& mask, const TiledGradient& g);

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_TILED_ATTENTION_H_
