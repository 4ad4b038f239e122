#ifndef SYNCLINE_KERNELS_DEVICE_SOFTMAX_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_SOFTMAX_KERNELS_H_

#include "kernels/device/floats.h"
#include "kernels/softmax.h"

namespace syncline {

class Stream;

// kernels/softmax.h has the formulas. y may be x, and dx may be dy, of one
// type.
struct SoftmaxKernels {
  struct Pair {
    void (*forward)(Stream& stream, const SoftmaxShape& s, ConstFloats x,
                    Floats y) = nullptr;
    void (*backward)(Stream& stream, const SoftmaxShape& s, ConstFloats y,
                     ConstFloats dy, bool accumulate, Floats dx) = nullptr;
  };
  Pair softmax;
  Pair log_softmax;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_SOFTMAX_KERNELS_H_
