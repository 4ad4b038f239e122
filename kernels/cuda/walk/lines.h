#ifndef SYNCLINE_KERNELS_CUDA_WALK_LINES_H_
#define SYNCLINE_KERNELS_CUDA_WALK_LINES_H_

// Kernels that go along lines of elements and fold what they find there: sums,
// softmax, normalisation. A line is shared by a group of threads, whose form
// depends on where the elements lie; a body is written once for all forms:
//
//   struct Body {
//     template <typename Group>
//     SYNCLINE_DEVICE void operator()(const Group& group, int64_t line,
//                                     int64_t n) const {
//       double sum = 0;
//       for (int64_t k = group.rank(); k < n; k += group.size()) sum += ...;
//       sum = group.Fold(sum, Plus());   // in all threads of the group
//       if (group.rank() == 0 && n > 0) y[line] = sum;
//     }
//   };
//
// Folds have the same order in every run. All threads of a group, and where
// groups share a block all of these, call Fold equally often: a group beyond
// the last line is called with n = 0.

#include "kernels/cuda/launch.h"
#include "kernels/cuda/walk/block_fold.h"

namespace syncline::cuda {

// Threads of a block that goes along 32 neighbouring lines.
inline constexpr int kColumnRanks = kBlockThreads / kWarpThreads;
// Lines of up to so many elements are a warp's.
inline constexpr int64_t kWarpLineMax = 1024;

// A thread, for lines of an element or few.
struct ThreadGroup {
  static constexpr int64_t kLinesOfBlock = kBlockThreads;
  static constexpr size_t kSharedBytes = 0;

  SYNCLINE_DEVICE int64_t Line() const {
    return static_cast<int64_t>(blockIdx.x) * kLinesOfBlock + threadIdx.x;
  }
  SYNCLINE_DEVICE int rank() const { return 0; }
  SYNCLINE_DEVICE int size() const { return 1; }
  template <typename T, typename F>
  SYNCLINE_DEVICE T Fold(T value, F) const {
    return value;
  }
};

// A warp: neighbouring threads take neighbouring elements of a line.
struct WarpGroup {
  static constexpr int64_t kLinesOfBlock = kBlockThreads / kWarpThreads;
  static constexpr size_t kSharedBytes = 0;

  SYNCLINE_DEVICE int64_t Line() const {
    return static_cast<int64_t>(blockIdx.x) * kLinesOfBlock +
           threadIdx.x / kWarpThreads;
  }
  SYNCLINE_DEVICE int rank() const { return threadIdx.x % kWarpThreads; }
  SYNCLINE_DEVICE int size() const { return kWarpThreads; }
  template <typename T, typename F>
  SYNCLINE_DEVICE T Fold(T value, F fold) const {
    return WarpFold(value, fold);
  }
};

// A block, for long lines.
struct BlockGroup {
  static constexpr int64_t kLinesOfBlock = 1;
  static constexpr size_t kSharedBytes = kWarpsMax * sizeof(double);

  SYNCLINE_DEVICE int64_t Line() const { return blockIdx.x; }
  SYNCLINE_DEVICE int rank() const { return threadIdx.x; }
  SYNCLINE_DEVICE int size() const { return blockDim.x; }
  template <typename T, typename F>
  SYNCLINE_DEVICE T Fold(T value, F fold) const {
    SharedMemory shared;
    return BlockFold(value, shared.Take<T>(kWarpsMax), fold);
  }
};

// A column of a block: neighbouring threads take neighbouring lines.
struct ColumnGroup {
  static constexpr int64_t kLinesOfBlock = kWarpThreads;
  static constexpr size_t kSharedBytes = kBlockThreads * sizeof(double);

  SYNCLINE_DEVICE int64_t Line() const {
    return static_cast<int64_t>(blockIdx.x) * kLinesOfBlock +
           threadIdx.x % kWarpThreads;
  }
  SYNCLINE_DEVICE int rank() const { return threadIdx.x / kWarpThreads; }
  SYNCLINE_DEVICE int size() const { return kColumnRanks; }
  template <typename T, typename F>
  SYNCLINE_DEVICE T Fold(T value, F fold) const {
    SharedMemory shared;
    const Shared<T> partial = shared.Take<T>(kBlockThreads);
    partial[threadIdx.x] = value;
    __syncthreads();
    const int column = threadIdx.x % kWarpThreads;
    T whole = partial[column];
    for (int k = 1; k < kColumnRanks; ++k) {
      whole = fold(whole, static_cast<T>(partial[k * kWarpThreads + column]));
    }
    __syncthreads();
    return whole;
  }
};

template <typename Group, typename Body>
struct LinesKernel {
  int64_t lines;
  int64_t n;
  Body body;

  SYNCLINE_DEVICE void operator()() const {
    const Group group;
    const int64_t line = group.Line();
    body(group, line, line < lines ? n : 0);
  }
};

template <typename Group, typename Body>
void LaunchGroups(Stream& stream, int64_t lines, int64_t n, const Body& body) {
  Launch(stream,
         {.blocks = (lines + Group::kLinesOfBlock - 1) / Group::kLinesOfBlock,
          .threads = kBlockThreads,
          .shared_bytes = Group::kSharedBytes},
         LinesKernel<Group, Body>{lines, n, body});
}

// Calls the body for each of `lines` lines of n elements. `are_adjacent`:
// element k of a line lies beside element k of the next line; otherwise beside
// element k + 1 of its own.
template <typename Body>
void LaunchLines(Stream& stream, int64_t lines, int64_t n, bool are_adjacent,
                 const Body& body) {
  if (are_adjacent && lines > 1) {
    LaunchGroups<ColumnGroup>(stream, lines, n, body);
  } else if (n <= kWarpLineMax) {
    LaunchGroups<WarpGroup>(stream, lines, n, body);
  } else {
    LaunchGroups<BlockGroup>(stream, lines, n, body);
  }
}

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_WALK_LINES_H_
