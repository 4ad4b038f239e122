#ifndef SYNCLINE_KERNELS_DEVICE_DROPOUT_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_DROPOUT_KERNELS_H_

#include <cstdint>

#include "kernels/device/floats.h"

namespace syncline {

class Stream;

// Dropout of n elements, by a mask of bytes: 1 for what is kept, 0 for what is
// dropped.
struct DropoutKernels {
  // Each element is dropped with probability `ratio`, in [0, 1): element i if
  // word `first` + i of the seed (kernels/elementwise/philox.h) is below
  // ratio * 2^32. `first` >= 0. So every device draws the same mask, whole or
  // in parts.
  void (*draw)(Stream& stream, int64_t n, uint64_t seed, int64_t first,
               double ratio, uint8_t* mask) = nullptr;
  // y = x * scale where the mask is 1, else 0, even if x is infinite. y may be
  // x.
  void (*apply)(Stream& stream, int64_t n, float scale, const uint8_t* mask,
                ConstFloats x, bool accumulate, Floats y) = nullptr;
  // The mask as float32.
  void (*widen)(Stream& stream, int64_t n, const uint8_t* mask,
                float* y) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_DROPOUT_KERNELS_H_
