#ifndef SYNCLINE_KERNELS_DEVICE_TENSOR_UPDATE_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_TENSOR_UPDATE_KERNELS_H_

#include <cstdint>

#include "kernels/optimizer/optimizer.h"

namespace syncline {

class Stream;

// A part of a tensor: elements [begin, begin + count) of the arrays of all
// tensors. An optimizer updates it, or, where `momentum` is not negative, it is
// a running mean.
struct TensorChunk {
  int64_t begin = 0;
  int32_t count = 0;  // at most kTensorChunkMax
  float momentum = -1;
};
inline constexpr int32_t kTensorChunkMax = 16384;

// The result of `check` for one chunk.
struct ChunkCheck {
  // Of the mean gradient, in float64; 0: of a running mean.
  double squares = 0;
  // The first element that is NaN or infinite, from the chunk's begin on.
  int64_t first_non_finite = kAllFinite;

  static constexpr int64_t kAllFinite = INT64_MAX;
};

// Updates of many tensors by one launch each. Values, gradients and each slot
// of the optimizer are one array of all tensors, laid out alike. `chunks` and
// what they are found to be are [count], in memory of the device; chunks do not
// overlap.
struct TensorUpdateKernels {
  // This optimizer has an `update`.
  bool (*has)(OptimizerKind kind) = nullptr;
  // found[c] of chunk c; the mean gradient is gradient * scale. Sums have a
  // fixed order, which is not that of AddSquares.
  void (*check)(Stream& stream, int64_t count, const TensorChunk* chunks,
                const float* gradient, float scale,
                ChunkCheck* found) = nullptr;
  // ApplyOptimizer of each chunk, with its bits, or AverageIn of running means,
  // by `scale`. REQUIRES: has(params.kind), step.frozen_t is 0.
  void (*update)(Stream& stream, const OptimizerParams& params,
                 const OptimizerStep& step, float scale, int64_t count,
                 const TensorChunk* chunks, const float* gradient, float* value,
                 float* const* slots) = nullptr;
  // change = (change - value) * weight; of running means value * weight.
  void (*change)(Stream& stream, float weight, int64_t count,
                 const TensorChunk* chunks, const float* value,
                 float* change) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_TENSOR_UPDATE_KERNELS_H_
