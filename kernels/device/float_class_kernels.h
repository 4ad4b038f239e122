#ifndef SYNCLINE_KERNELS_DEVICE_FLOAT_CLASS_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_FLOAT_CLASS_KERNELS_H_

#include <cstdint>

#include "kernels/elementwise/by_dtype.h"

namespace syncline {

class Stream;

// The class of each of n float32 or float64 numbers: 1 in its byte of y if it
// belongs to the class, else 0.
struct FloatClassKernels {
  // Which infinities count.
  struct Infinities {
    bool positive = true;
    bool negative = true;
  };
  using IsInfinity = void (*)(Stream& stream, const Infinities& which,
                              int64_t n, const void* x, uint8_t* y);
  using IsNan = void (*)(Stream& stream, int64_t n, const void* x, uint8_t* y);

  ByDType<IsInfinity> is_infinity;
  ByDType<IsNan> is_nan;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_FLOAT_CLASS_KERNELS_H_
