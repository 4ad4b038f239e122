#ifndef SYNCLINE_KERNELS_DEVICE_DROPOUT_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_DROPOUT_KERNELS_H_

#include <cstdint>

#include "kernels/device/floats.h"
#include "kernels/device/step_numbers.h"

namespace syncline {

class Stream;

// The words that a mask is made of: those of the seed
// SeedFor(SeedFor(numbers->seed, node), seed) (common/base/random.h), from word
// numbers->first_sample * per_sample on, which is not below 0.
struct MaskWords {
  const StepNumbers* numbers = nullptr;  // in memory of the device
  uint64_t node = 0;
  uint64_t seed = 0;
  int64_t per_sample = 1;
};

// Dropout of n elements, by a mask of bytes: 1 for what is kept, 0 for what is
// dropped.
struct DropoutKernels {
  // Each element is dropped with probability `ratio`, in [0, 1): element i if
  // word i from the first one on (kernels/elementwise/philox.h) is below
  // ratio * 2^32. So every device draws the same mask, whole or in parts.
  void (*draw)(Stream& stream, int64_t n, const MaskWords& words, double ratio,
               uint8_t* mask) = nullptr;
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
