#ifndef SYNCLINE_KERNELS_DEVICE_LOSS_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_LOSS_KERNELS_H_

#include <cstdint>

namespace syncline {

class Stream;

// Scores [samples, positions, width]. A label is for each position, or for mean
// squared error a target for each score.
struct LossShape {
  int64_t samples = 0;
  int64_t positions = 1;
  int64_t width = 1;
  // Positions whose label is negative count for nothing, and a sample's loss is
  // the mean over its other positions; softmax cross-entropy only.
  bool ignores = false;
};

// The loss summed over the samples, and unless `gradient` is null the gradient
// of that sum, which has the scores' shape and may lie over them.
// kernels/loss.h has the formulas; labels are whole numbers in range, as the
// host has checked. `loss` is one number in memory of the device.
struct LossKernels {
  using Kernel = void (*)(Stream& stream, const LossShape& s,
                          const float* scores, const float* labels,
                          float* gradient, double* loss);
  Kernel softmax_cross_entropy = nullptr;
  Kernel sigmoid_cross_entropy = nullptr;
  Kernel mean_squared_error = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_LOSS_KERNELS_H_
