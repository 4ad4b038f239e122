#ifndef SYNCLINE_KERNELS_OPTIMIZER_ELEMENT_UPDATE_H_
#define SYNCLINE_KERNELS_OPTIMIZER_ELEMENT_UPDATE_H_

// The updates of one element, for loops of this machine and kernels of a GPU,
// which are the same bits: sums, products, quotients and roots are rounded
// alike, one by one. Formulas are in optimizer.h.

#include <cmath>

#include "kernels/elementwise/host_device.h"
#include "kernels/optimizer/mean_gradient.h"
#include "kernels/optimizer/optimizer.h"

namespace syncline {

// Those below: a device has kernels of them.
inline bool HasElementUpdate(OptimizerKind kind) {
  return kind == OptimizerKind::kSgd || kind == OptimizerKind::kMomentum ||
         kind == OptimizerKind::kAdam || kind == OptimizerKind::kAdamW;
}

class SgdElement {
 public:
  static constexpr int kSlots = 0;

  SgdElement(const OptimizerParams& params, const OptimizerStep& step)
      : gradient_(params, step, /*decay=*/true), rate_(step.learning_rate) {}

  SYNCLINE_HOST_DEVICE void operator()(float gradient, float& value) const {
    value -= rate_ * gradient_.At(gradient, value);
  }

 private:
  MeanGradient gradient_;
  float rate_;
};

class MomentumElement {
 public:
  static constexpr int kSlots = 1;

  MomentumElement(const OptimizerParams& params, const OptimizerStep& step)
      : gradient_(params, step, /*decay=*/true),
        rate_(step.learning_rate),
        momentum_(params.momentum) {}

  SYNCLINE_HOST_DEVICE void operator()(float gradient, float& value,
                                       float& velocity) const {
    const float v = momentum_ * velocity + gradient_.At(gradient, value);
    velocity = v;
    value -= rate_ * v;
  }

 private:
  MeanGradient gradient_;
  float rate_;
  float momentum_;
};

// Adam and AdamW differ in where the decay goes. REQUIRES: step.frozen_t is 0.
class AdamElement {
 public:
  static constexpr int kSlots = 2;

  AdamElement(const OptimizerParams& params, const OptimizerStep& step,
              const AdamCorrection& correction)
      : gradient_(params, step,
                  /*decay=*/params.kind != OptimizerKind::kAdamW),
        shrink_(params.kind == OptimizerKind::kAdamW
                    ? step.learning_rate * params.weight_decay
                    : 0),
        beta1_(params.beta1),
        beta2_(params.beta2),
        rest1_(1 - params.beta1),
        rest2_(1 - params.beta2),
        epsilon_(params.epsilon),
        rate_(static_cast<float>(step.learning_rate / correction.first)),
        root_scale_(static_cast<float>(1 / correction.second_root)) {}
  AdamElement(const OptimizerParams& params, const OptimizerStep& step)
      : AdamElement(params, step, AdamCorrectionAt(params, step.t)) {}

  SYNCLINE_HOST_DEVICE void operator()(float gradient, float& value,
                                       float& first, float& second) const {
    const float mean = gradient_.At(gradient, value);
    const float m = beta1_ * first + rest1_ * mean;
    const float s = beta2_ * second + rest2_ * (mean * mean);
    first = m;
    second = s;
    const float kept = value - shrink_ * value;
    value = kept - rate_ * m / (std::sqrt(s) * root_scale_ + epsilon_);
  }

 private:
  MeanGradient gradient_;
  float shrink_;
  float beta1_;
  float beta2_;
  float rest1_;
  float rest2_;
  float epsilon_;
  float rate_;
  float root_scale_;
};

// A running mean: AverageIn.
class AverageElement {
 public:
  SYNCLINE_HOST_DEVICE AverageElement(float momentum, float scale)
      : momentum_(momentum), rest_(1 - momentum), scale_(scale) {}

  SYNCLINE_HOST_DEVICE void operator()(float sum, float& value) const {
    value = momentum_ * value + rest_ * (sum * scale_);
  }

 private:
  float momentum_;
  float rest_;
  float scale_;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_OPTIMIZER_ELEMENT_UPDATE_H_
