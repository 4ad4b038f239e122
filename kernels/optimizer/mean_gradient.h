#ifndef SYNCLINE_KERNELS_OPTIMIZER_MEAN_GRADIENT_H_
#define SYNCLINE_KERNELS_OPTIMIZER_MEAN_GRADIENT_H_

#include <limits>

#include "kernels/elementwise/host_device.h"
#include "kernels/optimizer/optimizer.h"

namespace syncline {

// The gradient as every optimizer sees it. Without branches, so that loops
// vectorise: no clipping is clipping at infinity, no decay is decay by zero.
class MeanGradient {
 public:
  MeanGradient(const OptimizerParams& params, const OptimizerStep& step,
               bool decay)
      : scale_(step.gradient_scale),
        limit_(params.clip_value > 0 ? params.clip_value
                                     : std::numeric_limits<float>::infinity()),
        decay_(decay ? params.weight_decay : 0) {}

  SYNCLINE_HOST_DEVICE float At(float gradient, float value) const {
    const float mean = gradient * scale_;
    // Comparisons with NaN are false, so NaN passes through both.
    const float above = mean < -limit_ ? -limit_ : mean;
    const float clipped = above > limit_ ? limit_ : above;
    return clipped + decay_ * value;
  }

 private:
  float scale_;
  float limit_;
  float decay_;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_OPTIMIZER_MEAN_GRADIENT_H_
