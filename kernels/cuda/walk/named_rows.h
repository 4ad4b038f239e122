#ifndef SYNCLINE_KERNELS_CUDA_WALK_NAMED_ROWS_H_
#define SYNCLINE_KERNELS_CUDA_WALK_NAMED_ROWS_H_

// Rows that are added to those that indices name, in order: the gradient of
// what was gathered. Each row is gathered by threads of its own, so that
// nothing is added by two threads.
//
// Few indices are chained by looking at all of them, and the first of each
// chain gathers its row. Many are sorted (sorted_rows.h), and rows are gathered
// in parts (row_parts.h): both take a time that is linear in the indices.

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/walk/row_parts.h"
#include "kernels/cuda/walk/sorted_rows.h"

namespace syncline::cuda {

// to [outer, rows, width]; from [outer, named, width].
struct NamedRowsShape {
  int64_t outer = 1;
  int64_t rows = 0;
  int64_t named = 0;
  int64_t width = 0;
};

// So many indices at most are looked at by each of them: fewer launches.
inline constexpr int64_t kChainedMax = 1024;
static_assert(kChainedMax <= kPartRows);  // no chain has a second part

// For each index whether it is the first that names its row, and the next one;
// of many, also their order and what it takes to sort them.
inline int64_t ChainScratchBytes(int64_t named) {
  const int64_t numbers =
      named <= kChainedMax ? 2 * named : 3 * named + SortCounts(named);
  return numbers * static_cast<int64_t>(sizeof(int64_t));
}

// Of AddNamedRows.
inline int64_t NamedRowsScratchBytes(const NamedRowsShape& s) {
  if (s.named <= kChainedMax) return ChainScratchBytes(s.named);
  const int64_t slots = PartSlots(s.named);
  return (2 * s.named + SortCounts(s.named) + 3 * slots) *
             static_cast<int64_t>(sizeof(int64_t)) +
         s.outer * slots * s.width * static_cast<int64_t>(sizeof(double));
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

// From the order of indices to the chains.
template <typename At>
struct LinkKernel {
  RowOrder<At> rows;
  Global<int64_t> is_first;
  Global<int64_t> next;

  SYNCLINE_DEVICE void operator()(int64_t place) const {
    const int64_t i = rows.order[place];
    const int64_t row = rows.at(i);
    is_first[i] = rows.HasRow(place - 1, row) ? 0 : 1;
    int64_t behind = -1;
    if (rows.HasRow(place + 1, row)) behind = rows.order[place + 1];
    next[i] = behind;
  }
};

// at(i), in [0, rows), is the row that index i names. `scratch` has
// ChainScratchBytes.
template <typename At>
Chains ChainRows(Stream& stream, int64_t rows, int64_t named, const At& at,
                 void* scratch) {
  int64_t* const is_first = static_cast<int64_t*>(scratch);
  int64_t* const next = is_first + named;
  if (named > kChainedMax) {
    int64_t* const order = next + named;
    SortByRow(stream, rows, named, at, order, /*spare=*/next, order + named);
    const int64_t* const sorted = order;
    LaunchElements(
        stream, named,
        LinkKernel<At>{
            {named, at, OnDevice(sorted)}, OnDevice(is_first), OnDevice(next)});
    return {is_first, next};
  }
  constexpr int64_t kWarps = kBlockThreads / kWarpThreads;
  Launch(stream,
         {.blocks = (named + kWarps - 1) / kWarps, .threads = kBlockThreads},
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

template <typename At, typename From, typename To>
void AddSortedRows(Stream& stream, const NamedRowsShape& s, const At& at,
                   const From& from, const To& to, void* scratch) {
  const int64_t slots = PartSlots(s.named);
  int64_t* const order = static_cast<int64_t*>(scratch);
  int64_t* const spare = order + s.named;
  int64_t* const begins = spare + s.named;
  const PartArrays arrays = {begins, begins + slots, begins + 2 * slots};
  double* const sums = reinterpret_cast<double*>(begins + 3 * slots);
  int64_t* const counts =
      reinterpret_cast<int64_t*>(sums + s.outer * slots * s.width);
  SortByRow(stream, s.rows, s.named, at, order, spare, counts);
  const int64_t* const sorted = order;
  const RowOrder<At> rows = {s.named, at, OnDevice(sorted)};
  LaunchElements(stream, s.outer * s.named * s.width,
                 AddShortRows<At, From, To>{rows, s.rows, s.width, from, to});
  LaunchElements(
      stream, slots / 2,
      FindParts<At>{rows, OnDevice(arrays.begins), OnDevice(arrays.row_begins),
                    OnDevice(arrays.row_ends)});
  const Parts parts = OnDevice(arrays);
  const int64_t lines = s.outer * slots * s.width;
  LaunchLines(stream, lines, kPartRows,
              /*are_adjacent=*/s.width >= kWarpThreads / 2,
              SumPartsBody<From>{parts, slots, s.named, s.width,
                                 OnDevice(sorted), from, OnDevice(sums)});
  const double* const summed = sums;
  LaunchElements(stream, lines,
                 AddLongRows<At, To>{rows, parts, slots, s.rows, s.width,
                                     OnDevice(summed), to});
}

// to[o, at(i)] += from[o, i]. REQUIRES: at(i) is in [0, rows). `scratch` has
// NamedRowsScratchBytes.
template <typename At>
void AddNamedRows(Stream& stream, const NamedRowsShape& s, const At& at,
                  ConstFloats from, Floats to, void* scratch) {
  if (s.outer == 0 || s.width == 0) return;
  if (s.named > kChainedMax) {
    return AddSortedRows(stream, s, at, OnDevice(from), OnDevice(to), scratch);
  }
  const Chains chains = ChainRows(stream, s.rows, s.named, at, scratch);
  LaunchElements(
      stream, s.outer * s.named * s.width,
      GatherChain<At>{s, at, OnDevice(chains.is_first), OnDevice(chains.next),
                      OnDevice(from), OnDevice(to)});
}

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_WALK_NAMED_ROWS_H_
