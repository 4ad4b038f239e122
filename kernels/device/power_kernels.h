#ifndef SYNCLINE_KERNELS_DEVICE_POWER_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_POWER_KERNELS_H_

#include "kernels/elementwise/broadcast_shape.h"

namespace syncline {

class Stream;

// a^b of float32 numbers with broadcasting, and its gradients, which add up and
// overlap as those of BinaryKernels do. A single exponent of -1, 1/2, 1, 2 or 3
// costs no more than arithmetic does; others cost a call of pow for each
// element.
struct PowerKernels {
  // NaN where a < 0 and b is no whole number. y may be a or b where that has
  // the result's shape.
  void (*forward)(Stream& stream, const Broadcast& s, const float* a,
                  const float* b, float* y) = nullptr;
  // dy * b * a^(b - 1). da may be dy where a has the result's shape.
  void (*backward_a)(Stream& stream, const Broadcast& s, const float* a,
                     const float* b, const float* dy, bool accumulate,
                     float* da) = nullptr;
  // dy * y * log(a), and 0 where a is 0. db may be dy likewise.
  void (*backward_b)(Stream& stream, const Broadcast& s, const float* a,
                     const float* y, const float* dy, bool accumulate,
                     float* db) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_POWER_KERNELS_H_
