#ifndef SYNCLINE_KERNELS_DEVICE_LOSS_SCALE_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_LOSS_SCALE_KERNELS_H_

#include <cstdint>

#include "kernels/device/data_error.h"

namespace syncline {

class Stream;

// Gradients multiplied by a scale, and by its inverse: worker/compute/
// loss_scale.h says why.
struct LossScaleKernels {
  // x[i] *= *factor, for n float32 numbers. `factor` lies in memory of the
  // device, so that a scale may change between steps that are otherwise the
  // same. A power of two changes no bit but the exponent's, unless the result
  // is subnormal or too large. The first result that is NaN or infinite is
  // reported as kind 0, with its position.
  void (*scale)(Stream& stream, int64_t n, const float* factor, float* x,
                const ErrorSlot& errors) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_LOSS_SCALE_KERNELS_H_
