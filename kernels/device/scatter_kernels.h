#ifndef SYNCLINE_KERNELS_DEVICE_SCATTER_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_SCATTER_KERNELS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/device/indexed_kernels.h"

namespace syncline {

class Stream;

// The way in which an element and the updates that come to its place become one
// number, in their order. kReplace: the last one counts, and has the gradient.
// Of an extremum's gradient all that are equal to it have the same share, as
// PyTorch shares it; a NaN is kept.
enum class ScatterReduction { kReplace, kAdd, kMultiply, kMax, kMin };
inline constexpr size_t kScatterReductions = 5;

// An array into which runs are scattered. float32.
struct ScatterKernels {
  // The results; null where one is not wanted.
  struct Gradients {
    float* x = nullptr;  // [count]
    bool accumulate_x = false;
    float* updates = nullptr;  // [runs, run_length]
    bool accumulate_updates = false;
  };
  struct Reduction {
    // `begins` is what IndexedKernels::find wrote; -1 afterwards for a run that
    // another one has replaced.
    void (*forward)(Stream& stream, const IndexedShape& s, const float* x,
                    const float* updates, int64_t* begins, float* y,
                    void* scratch) = nullptr;
    // `begins` as forward left it. kReplace and kAdd do not read x, updates and
    // y, kMultiply does not read y. The gradient of x may be dy.
    void (*backward)(Stream& stream, const IndexedShape& s, const float* x,
                     const float* updates, const int64_t* begins,
                     const float* y, const float* dy,
                     const Gradients& gradients, void* scratch) = nullptr;
    int64_t (*forward_scratch_bytes)(const IndexedShape& s) = nullptr;
    int64_t (*backward_scratch_bytes)(const IndexedShape& s) = nullptr;
  };
  std::array<Reduction, kScatterReductions> reductions;

  const Reduction& operator[](ScatterReduction reduction) const {
    return reductions[static_cast<size_t>(reduction)];
  }
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_SCATTER_KERNELS_H_
