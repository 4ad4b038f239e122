#ifndef SYNCLINE_KERNELS_CUDA_ATTENTION_TILES_H_
#define SYNCLINE_KERNELS_CUDA_ATTENTION_TILES_H_

// The sizes and helpers that the kernels of tiled attention share.

#include <cstdint>

#include "common/base/check.h"
#include "kernels/cuda/tile.h"
#include "kernels/cuda/tiled_attention.h"

namespace syncline::cuda {

// Rows that a block has, 16 for each warp, and those of the other side that it
// goes along in steps. So that all tiles of the gradients fit into 48 KiB.
template <typename E, int kWidth>
struct Tiling {
  static constexpr bool kIsNarrow = sizeof(E) == 2;
  static constexpr int kRows =
      kWidth <= 64 ? (kIsNarrow ? 64 : 32) : (kIsNarrow ? 32 : 16);
  static constexpr int kSteps = kWidth <= 64 || kIsNarrow ? 32 : 16;
  static constexpr int kThreads = kRows / kMmaRows * kWarpThreads;
  using Operand = Tile<E, kWidth>;
  using Scores = Tile<E, kSteps>;
};

SYNCLINE_DEVICE inline int AtMost(int64_t n, int most) {
  return n < most ? static_cast<int>(n) : most;
}

// Where row `row` of a head of a sample begins.
SYNCLINE_DEVICE inline int64_t RowAt(const Attention::Layout& layout,
                                     int64_t sample, int64_t head,
                                     int64_t row) {
  return sample * layout.batch + head * layout.head + row * layout.row;
}

// The score of a query and key `j` from their product. `begin` is where the
// query's mask begins; it sees `seen` keys.
SYNCLINE_DEVICE inline float MaskedScore(const DeviceMask& mask, int64_t begin,
                                         int64_t seen, int64_t j, float score) {
  if (j >= seen) return -INFINITY;
  const int64_t at = begin + j * mask.column;
  if (mask.adds) score += mask.added[at];
  return mask.Hides(at) ? mask.hidden : score;
}

// Calls launch(E(), width) with the element of `type` and the width of tiles,
// an integral constant, that has `columns`.
template <typename Launch>
void WithTiling(DType type, int columns, Launch launch) {
  SYNCLINE_CHECK(columns <= kTiledWidthMax);
  const auto with_width = [&](auto element) {
    if (columns <= 64) {
      launch(element, std::integral_constant<int, 64>());
    } else {
      launch(element, std::integral_constant<int, 128>());
    }
  };
  if (type == DType::kFloat32) {
    with_width(float{});
  } else {
    with_width(uint16_t{});
  }
}

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_ATTENTION_TILES_H_
