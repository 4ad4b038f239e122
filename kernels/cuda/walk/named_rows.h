#ifndef SYNCLINE_KERNELS_CUDA_WALK_NAMED_ROWS_H_
#define SYNCLINE_KERNELS_CUDA_WALK_NAMED_ROWS_H_

// Rows that are added to those that indices name, in order: the gradient of
// what was gathered. Indices of one row are chained first, by looking at all of
// them; then the first of each chain gathers its row, element by element. So
// nothing is added by two threads, and there is no sort.

#include <cstdint>

#include "kernels/cuda/launch.h"

namespace syncline::cuda {

// to [outer, rows, width]; from [outer, named, width]. `scratch` has
// NamedRowsScratchBytes.
struct NamedRowsShape {
  int64_t outer = 1;
  int64_t rows = 0;
  int64_t named = 0;
  int64_t width = 0;
};

// For each index whether it is the first that names its row, and the next one.
inline int64_t NamedRowsScratchBytes(int64_t named) {
  return 2 * named * static_cast<int64_t>(sizeof(int64_t));
}

// A warp for each index.
template <typename At>
struct ChainKernel {
  int64_t named;
  At at;
  Global<int64_t> is_first;
  Global<int64_t> next;

  SYNCLINE_DEVICE void operator()() const {
    const int lane = threadIdx.x % kWarpThreads;
    const int64_t warps =
        static_cast<int64_t>(gridDim.x) * blockDim.x / kWarpThreads;
    for (int64_t i =
             (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) /
             kWarpThreads;
         i < named; i += warps) {
      const int64_t row = at(i);
      unsigned before = 0;
      for (int64_t j = 0; j < i && before == 0; j += kWarpThreads) {
        const int64_t k = j + lane;
        before = __ballot_sync(kAllLanes, k < i && at(k) == row);
      }
      int64_t behind = -1;
      for (int64_t j = i + 1; j < named && behind < 0; j += kWarpThreads) {
        const int64_t k = j + lane;
        const unsigned found =
            __ballot_sync(kAllLanes, k < named && at(k) == row);
        for (int n = 0; n < kWarpThreads && behind < 0; ++n) {
          if ((found >> n & 1) != 0) behind = j + n;
        }
      }
      if (lane != 0) continue;
      is_first[i] = before == 0 ? 1 : 0;
      next[i] = behind;
    }
  }
};

template <typename At>
struct GatherChain {
  NamedRowsShape s;
  At at;
  Global<const int64_t> is_first;
  Global<const int64_t> next;
  ConstFloatArray from;
  FloatArray to;

  SYNCLINE_DEVICE void operator()(int64_t element) const {
    const int64_t column = element % s.width;
    const int64_t i = element / s.width % s.named;
    const int64_t o = element / s.width / s.named;
    if (is_first[i] == 0) return;
    double sum = 0;
    for (int64_t k = i; k >= 0; k = next[k]) {
      sum += from[(o * s.named + k) * s.width + column];
    }
    to[(o * s.rows + at(i)) * s.width + column] += static_cast<float>(sum);
  }
};

// The indices of each row, in order; in memory of the device.
struct Chains {
  const int64_t* is_first;  // by index: 1 if no index before it names its row
  const int64_t* next;      // by index: the next one of its row; -1: none
};

// at(i) is the row that index i names. `scratch` has NamedRowsScratchBytes.
template <typename At>
Chains ChainRows(Stream& stream, int64_t named, const At& at, void* scratch) {
  int64_t* const is_first = static_cast<int64_t*>(scratch);
  int64_t* const next = is_first + named;
  constexpr int64_t kWarps = kBlockThreads / kWarpThreads;
  Launch(stream,
         {.blocks = std::min((named + kWarps - 1) / kWarps, kElementBlocksMax),
          .threads = kBlockThreads},
         ChainKernel<At>{named, at, OnDevice(is_first), OnDevice(next)});
  return {is_first, next};
}

// The row of a run that begins at a multiple of its length.
struct RowOfRun {
  int64_t run_length;
  Global<const int64_t> begins;

  SYNCLINE_DEVICE int64_t operator()(int64_t i) const {
    return begins[i] / run_length;
  }
};

// to[o, at(i)] += from[o, i]. REQUIRES: at(i) is in [0, rows).
template <typename At>
void AddNamedRows(Stream& stream, const NamedRowsShape& s, const At& at,
                  ConstFloats from, Floats to, void* scratch) {
  const Chains chains = ChainRows(stream, s.named, at, scratch);
  LaunchElements(
      stream, s.outer * s.named * s.width,
      GatherChain<At>{s, at, OnDevice(chains.is_first), OnDevice(chains.next),
                      OnDevice(from), OnDevice(to)});
}

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_WALK_NAMED_ROWS_H_
