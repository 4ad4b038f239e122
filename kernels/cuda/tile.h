#ifndef SYNCLINE_KERNELS_CUDA_TILE_H_
#define SYNCLINE_KERNELS_CUDA_TILE_H_

// Parts of matrices in a block's shared memory, and their products: of 16 bits
// on tensor cores, of float32 by fused multiply-adds. A warp computes 16 rows,
// whose sums its lanes have as tensor cores give them (mma.h).

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/mma.h"

// Before a loop over what a lane has in registers: an index that is no constant
// would put it into memory.
#if defined(__CUDACC__)
#define SYNCLINE_UNROLL _Pragma("unroll")
#else
#define SYNCLINE_UNROLL
#endif

namespace syncline::cuda {

// E: float, or uint16_t for both types of 16 bits.
template <typename E, int kColumns>
struct Tile {
  // Rows begin in different banks, and at multiples of 16 bytes.
  static constexpr int kRow = kColumns + 16 / static_cast<int>(sizeof(E));

  Shared<E> at;

  SYNCLINE_DEVICE static Tile Take(SharedMemory& shared, int rows) {
    return {shared.Take<E>(rows * kRow)};
  }
  // Of so many rows.
  static constexpr size_t Bytes(int rows) { return rows * kRow * sizeof(E); }

  SYNCLINE_DEVICE uint32_t PairAt(int row, int column) const {
    return ViewAs<uint32_t>(at)[(row * kRow + column) / 2];
  }
};

// The next multiple of 16, to which tiles are filled up with zeros.
SYNCLINE_DEVICE inline int FilledUp(int n) { return (n + 15) / 16 * 16; }

// Row r of the tile is from[begin + r * row ...]. All threads of the block call
// it; a barrier follows before it is read.
template <typename E, int kColumns>
SYNCLINE_DEVICE void LoadTile(const Tile<E, kColumns>& tile,
                              Global<const E> from, int64_t begin, int64_t row,
                              int rows, int columns) {
  constexpr int kThreadsOfRow = 16;
  const int filled_columns = FilledUp(columns);
  for (int r = threadIdx.x / kThreadsOfRow; r < FilledUp(rows);
       r += blockDim.x / kThreadsOfRow) {
    for (int c = threadIdx.x % kThreadsOfRow; c < filled_columns;
         c += kThreadsOfRow) {
      E value{0};
      if (r < rows && c < columns) value = from[begin + r * row + c];
      tile.at[r * Tile<E, kColumns>::kRow + c] = value;
    }
  }
}

// How the other factor B [k, n] of a product lies in its tile.
enum class Stored { kByColumn, kByRow };  // [n][k], [k][n]

// sums += A B for rows [row, row + 16) of A, k in [0, 16 * steps) and columns
// [column, column + 8) of B.
template <Stored kStored, int kDepth, int kOther>
SYNCLINE_DEVICE void MultiplyTiles(DType, const Tile<float, kDepth>& a, int row,
                                   const Tile<float, kOther>& b, int column,
                                   int steps, MmaSums& sums) {
  const int first = (row + MmaGroup()) * Tile<float, kDepth>::kRow;
  const int second = first + 8 * Tile<float, kDepth>::kRow;
  const int n = column + 2 * MmaMember();
  for (int k = 0; k < steps * kMmaDepth; ++k) {
    constexpr int kRow = Tile<float, kOther>::kRow;
    const bool by_column = kStored == Stored::kByColumn;
    const float left = b.at[by_column ? n * kRow + k : k * kRow + n];
    const float right = b.at[by_column ? (n + 1) * kRow + k : k * kRow + n + 1];
    const float upper = a.at[first + k];
    const float lower = a.at[second + k];
    sums.at[0] = std::fmaf(upper, left, sums.at[0]);
    sums.at[1] = std::fmaf(upper, right, sums.at[1]);
    sums.at[2] = std::fmaf(lower, left, sums.at[2]);
    sums.at[3] = std::fmaf(lower, right, sums.at[3]);
  }
}

template <Stored kStored, int kDepth, int kOther>
SYNCLINE_DEVICE void MultiplyTiles(DType type, const Tile<uint16_t, kDepth>& a,
                                   int row, const Tile<uint16_t, kOther>& b,
                                   int column, int steps, MmaSums& sums) {
  const int first = row + MmaGroup();
  const int n = column + MmaGroup();
  for (int step = 0; step < steps; ++step) {
    const int k = step * kMmaDepth + 2 * MmaMember();
    const MmaRowPairs rows = {{a.PairAt(first, k), a.PairAt(first + 8, k),
                               a.PairAt(first, k + 8),
                               a.PairAt(first + 8, k + 8)}};
    MmaColumnPairs columns;
    for (int i = 0; i < 2; ++i) {
      const int at = k + 8 * i;
      if constexpr (kStored == Stored::kByColumn) {
        columns.pairs[i] = b.PairAt(n, at);
      } else {
        constexpr int kRow = Tile<uint16_t, kOther>::kRow;
        const uint32_t low = b.at[at * kRow + n];
        const uint32_t high = b.at[(at + 1) * kRow + n];
        columns.pairs[i] = low | high << 16;
      }
    }
    MultiplyAdd(type, rows, columns, sums);
  }
}

// Rounded to the tile's type.
template <typename E>
SYNCLINE_DEVICE E AsElement(DType type, float value) {
  if constexpr (std::is_same_v<E, float>) {
    return value;
  } else {
    return NarrowAs(type, value);
  }
}

// Writes a warp's sums, 8 columns from `column` on, into a tile.
template <typename E, int kColumns>
SYNCLINE_DEVICE void StoreSums(DType type, const MmaSums& sums,
                               const Tile<E, kColumns>& tile, int row,
                               int column) {
  for (int i = 0; i < 4; ++i) {
    const int r = row + MmaGroup() + i / 2 * 8;
    const int c = column + 2 * MmaMember() + i % 2;
    tile.at[r * Tile<E, kColumns>::kRow + c] = AsElement<E>(type, sums.at[i]);
  }
}

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_TILE_H_
