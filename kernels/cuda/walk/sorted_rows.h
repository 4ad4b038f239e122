#ifndef SYNCLINE_KERNELS_CUDA_WALK_SORTED_ROWS_H_
#define SYNCLINE_KERNELS_CUDA_WALK_SORTED_ROWS_H_

// Indices in the order of the rows that they name, those of one row in their
// own order: a radix sort, digit by digit from the lowest. For each digit, a
// block counts how often its tile of indices has each value of it; then all
// counts are added up; then each index goes where it belongs. A thread's
// indices are neighbours, and what they count is the thread's own, so that the
// order is always the same.

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/walk/block_fold.h"

namespace syncline::cuda {

inline constexpr int kDigitBits = 4;
inline constexpr int kDigits = 1 << kDigitBits;
// Indices of a thread, and of a block.
inline constexpr int kSortItems = 16;
inline constexpr int64_t kSortTile = int64_t{kBlockThreads} * kSortItems;

inline int64_t SortTiles(int64_t named) {
  return (named + kSortTile - 1) / kSortTile;
}
// Numbers that SortByRow needs to count with.
inline int64_t SortCounts(int64_t named) { return kDigits * SortTiles(named); }

// The sum of `value` over the threads of the block before this one. All threads
// call it. `partial` is shared, [kWarpsMax].
template <typename T>
SYNCLINE_DEVICE T SumBefore(T value, Shared<T> partial) {
  const int lane = threadIdx.x % kWarpThreads;
  const int warp = threadIdx.x / kWarpThreads;
  T sum = value;  // with this one, of the warp
  for (int distance = 1; distance < kWarpThreads; distance *= 2) {
    const bool has_other = lane >= distance;
    const T other =
        __shfl_sync(kAllLanes, sum, has_other ? lane - distance : lane);
    if (has_other) sum += other;
  }
  if (lane == kWarpThreads - 1) partial[warp] = sum;
  __syncthreads();
  T before = sum - value;
  for (int w = 0; w < warp; ++w) before += static_cast<T>(partial[w]);
  __syncthreads();
  return before;
}

// Indices as the digits below have sorted them, by block in tiles.
template <typename At>
struct SortPass {
  int64_t named;
  At at;
  bool is_first;
  int shift;
  Global<const int64_t> order;  // not of the first pass

  SYNCLINE_DEVICE int64_t IndexAt(int64_t s) const {
    return is_first ? s : static_cast<int64_t>(order[s]);
  }
  SYNCLINE_DEVICE int DigitOf(int64_t index) const {
    return static_cast<int>(at(index) >> shift & (kDigits - 1));
  }
  // Of the running thread, [begin, end).
  SYNCLINE_DEVICE int64_t begin() const {
    const int64_t own =
        blockIdx.x * kSortTile + static_cast<int64_t>(threadIdx.x) * kSortItems;
    return own < named ? own : named;
  }
  SYNCLINE_DEVICE int64_t end() const {
    const int64_t behind = begin() + kSortItems;
    return behind < named ? behind : named;
  }

  // counts [digit, thread]: how many indices of the tile have a lower digit, or
  // this one and an earlier thread.
  SYNCLINE_DEVICE void CountTile(Shared<int32_t> counts,
                                 Shared<int32_t> partial) const {
    const int thread = threadIdx.x;
    for (int d = 0; d < kDigits; ++d) counts[d * kBlockThreads + thread] = 0;
    for (int64_t s = begin(); s < end(); ++s) {
      counts[DigitOf(IndexAt(s)) * kBlockThreads + thread] += 1;
    }
    __syncthreads();
    // As many counts as a thread has counted, but neighbours.
    const int first = thread * kDigits;
    int32_t own = 0;
    for (int i = 0; i < kDigits; ++i) own += counts[first + i];
    int32_t before = SumBefore(own, partial);
    for (int i = 0; i < kDigits; ++i) {
      const int32_t count = counts[first + i];
      counts[first + i] = before;
      before += count;
    }
    __syncthreads();
  }
};

// Of CountTile's arrays, and of the digits' begins.
inline constexpr size_t kSortSharedBytes =
    (kDigits * kBlockThreads + kWarpsMax + kDigits) * sizeof(int32_t);

// tile_counts [digit, tile]
template <typename At>
struct CountDigits {
  SortPass<At> pass;
  Global<int64_t> tile_counts;

  SYNCLINE_DEVICE void operator()() const {
    SharedMemory shared;
    const auto counts = shared.Take<int32_t>(kDigits * kBlockThreads);
    const auto partial = shared.Take<int32_t>(kWarpsMax);
    pass.CountTile(counts, partial);
    const int digit = threadIdx.x;
    if (digit >= kDigits) return;
    const int64_t tile = blockIdx.x;
    const int64_t left = pass.named - tile * kSortTile;
    int64_t behind = left < kSortTile ? left : kSortTile;
    if (digit + 1 < kDigits) {
      behind = static_cast<int32_t>(counts[(digit + 1) * kBlockThreads]);
    }
    tile_counts[digit * static_cast<int64_t>(gridDim.x) + tile] =
        behind - static_cast<int32_t>(counts[digit * kBlockThreads]);
  }
};

// From counts to the sums of those before, by one block.
struct AddUpCounts {
  int64_t n;
  Global<int64_t> counts;

  SYNCLINE_DEVICE void operator()() const {
    SharedMemory shared;
    const auto partial = shared.Take<int64_t>(kWarpsMax);
    const int64_t each = (n + blockDim.x - 1) / blockDim.x;
    const int64_t begin = each * threadIdx.x;
    int64_t sum = 0;
    for (int64_t i = begin; i < begin + each && i < n; ++i) sum += counts[i];
    int64_t before = SumBefore(sum, partial);
    for (int64_t i = begin; i < begin + each && i < n; ++i) {
      const int64_t count = counts[i];
      counts[i] = before;
      before += count;
    }
  }
};

template <typename At>
struct PutInOrder {
  SortPass<At> pass;
  Global<const int64_t> tile_begins;  // [digit, tile]
  Global<int64_t> order;

  SYNCLINE_DEVICE void operator()() const {
    SharedMemory shared;
    const auto counts = shared.Take<int32_t>(kDigits * kBlockThreads);
    const auto partial = shared.Take<int32_t>(kWarpsMax);
    const auto begins = shared.Take<int32_t>(kDigits);
    pass.CountTile(counts, partial);
    const int thread = threadIdx.x;
    if (thread < kDigits) {
      begins[thread] = static_cast<int32_t>(counts[thread * kBlockThreads]);
    }
    __syncthreads();
    for (int64_t s = pass.begin(); s < pass.end(); ++s) {
      const int64_t index = pass.IndexAt(s);
      const int digit = pass.DigitOf(index);
      const int own = digit * kBlockThreads + thread;
      const int32_t place = counts[own];
      counts[own] = place + 1;
      const int64_t tile_begin =
          tile_begins[digit * static_cast<int64_t>(gridDim.x) + blockIdx.x];
      order[tile_begin + place - static_cast<int32_t>(begins[digit])] = index;
    }
  }
};

// order[s] for s in [0, named): the indices, by at(i), which is in [0, rows).
// In memory of the device: order and `spare` [named], counts [SortCounts].
template <typename At>
void SortByRow(Stream& stream, int64_t rows, int64_t named, const At& at,
               int64_t* order, int64_t* spare, int64_t* counts) {
  if (named == 0) return;
  int passes = 1;
  while ((rows - 1) >> (passes * kDigitBits) > 0) ++passes;
  const int64_t tiles = SortTiles(named);
  const LaunchShape by_tile = {.blocks = tiles,
                               .threads = kBlockThreads,
                               .shared_bytes = kSortSharedBytes};
  const int64_t* from = nullptr;
  for (int p = 0; p < passes; ++p) {
    int64_t* const to = (passes - p) % 2 == 1 ? order : spare;
    const SortPass<At> pass = {named, at, p == 0, p * kDigitBits,
                               OnDevice(from)};
    Launch(stream, by_tile, CountDigits<At>{pass, OnDevice(counts)});
    Launch(stream,
           {.blocks = 1,
            .threads = kBlockThreads,
            .shared_bytes = kWarpsMax * sizeof(int64_t)},
           AddUpCounts{kDigits * tiles, OnDevice(counts)});
    const int64_t* const begins = counts;
    Launch(stream, by_tile,
           PutInOrder<At>{pass, OnDevice(begins), OnDevice(to)});
    from = to;
  }
}

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_WALK_SORTED_ROWS_H_
