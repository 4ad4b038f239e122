#ifndef SYNCLINE_KERNELS_CUDA_WALK_SUM_OF_LINES_H_
#define SYNCLINE_KERNELS_CUDA_WALK_SUM_OF_LINES_H_

// The sum over lines of what each of them gives, in a fixed order: blocks sum
// the lines that are theirs, and then one block sums the blocks.

#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/walk/block_fold.h"
#include "kernels/cuda/walk/lines.h"

namespace syncline::cuda {

// Blocks that sum.
inline constexpr int64_t kSumBlocksMax = 1024;
static_assert(kSumBlocksMax <= kPartialSumsMax);

// Body: as of lines.h, but it returns the line's summand: each thread of the
// group a part of it.
template <typename Group, typename Body>
struct SumBlocksKernel {
  int64_t lines;
  int64_t n;
  Body body;
  Global<double> sums;

  SYNCLINE_DEVICE void operator()() const {
    const Group group;
    const int64_t step = static_cast<int64_t>(gridDim.x) * Group::kLinesOfBlock;
    const int64_t own = group.Line();
    double sum = 0;
    // All threads of the block go equally often.
    for (int64_t first = own - own % Group::kLinesOfBlock; first < lines;
         first += step) {
      const int64_t line = first + own % Group::kLinesOfBlock;
      sum += body(group, line, line < lines ? n : 0);
    }
    SharedMemory shared;
    sum = BlockSum(sum, shared.Take<double>(kWarpsMax));
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
  }
};

struct SumSumsKernel {
  int64_t count;
  double scale;
  Global<const double> sums;
  Global<double> to;

  SYNCLINE_DEVICE void operator()() const {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += sums[i];
    SharedMemory shared;
    sum = BlockSum(sum, shared.Take<double>(kWarpsMax));
    if (threadIdx.x == 0) to[0] = scale * sum;
  }
};

template <typename Group, typename Body>
void SumOfGroups(Stream& stream, int64_t lines, int64_t n, const Body& body,
                 double scale, double* to) {
  constexpr size_t kShared =
      std::max(Group::kSharedBytes, kWarpsMax * sizeof(double));
  const int64_t blocks = std::min(
      (lines + Group::kLinesOfBlock - 1) / Group::kLinesOfBlock, kSumBlocksMax);
  const Global<double> sums = PartialSums(stream);
  Launch(stream,
         {.blocks = blocks, .threads = kBlockThreads, .shared_bytes = kShared},
         SumBlocksKernel<Group, Body>{lines, n, body, sums});
  Launch(stream,
         {.blocks = 1, .threads = kBlockThreads, .shared_bytes = kShared},
         SumSumsKernel{blocks, scale, sums, OnDevice(to)});
}

// to[0] = scale * the sum over `lines` lines of n elements, each beside the
// next of its line.
template <typename Body>
void SumOfLines(Stream& stream, int64_t lines, int64_t n, const Body& body,
                double scale, double* to) {
  if (n == 1) {
    SumOfGroups<ThreadGroup>(stream, lines, n, body, scale, to);
  } else if (n <= kWarpLineMax) {
    SumOfGroups<WarpGroup>(stream, lines, n, body, scale, to);
  } else {
    SumOfGroups<BlockGroup>(stream, lines, n, body, scale, to);
  }
}

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_WALK_SUM_OF_LINES_H_
