#ifndef SYNCLINE_KERNELS_DEVICE_SOFTMAX_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_SOFTMAX_KERNELS_H_

#include "kernels/softmax.h"

namespace syncline {

class Stream;

// kernels/softmax.h has the formulas. float32; y may be x, and dx may be dy.
struct SoftmaxKernels {
  struct Pair {
    void (*forward)(Stream& stream, const SoftmaxShape& s, const float* x,
                    float* y) = nullptr;
    void (*backward)(Stream& stream, const SoftmaxShape& s, const float* y,
                     const float* dy, bool accumulate, float* dx) = nullptr;
  };
  Pair softmax;
  Pair log_softmax;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_SOFTMAX_KERNELS_H_
