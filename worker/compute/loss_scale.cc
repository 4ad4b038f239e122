#include "worker/compute/loss_scale.h"

#include <algorithm>
#include <cmath>

namespace syncline::worker {

LossScale::LossScale(const LossScaleSpec& spec)
    : dynamic_(!spec.has_fixed()),
      scale_(spec.has_fixed() ? spec.fixed() : spec.initial()),
      minimum_(spec.minimum()),
      window_(spec.window()),
      hysteresis_(spec.hysteresis()),
      overflows_left_(spec.hysteresis()) {}

float LossScale::FactorFor(int64_t batch_size) const {
  int64_t rounded = 1;
  while (rounded < batch_size) rounded *= 2;
  return scale_ / static_cast<float>(rounded);
}

LossScale::Event LossScale::OnStep(bool overflowed) {
  return overflowed ? OnOverflow() : OnGood();
}

LossScale::State LossScale::state() const {
  return {.scale = scale_,
          .good_steps = good_,
          .tolerated = hysteresis_ - overflows_left_};
}

bool LossScale::Restore(const State& state) {
  int exponent = 0;
  const bool is_power_of_two = std::isfinite(state.scale) && state.scale > 0 &&
                               std::frexp(state.scale, &exponent) == 0.5f;
  if (!dynamic_ || (!is_power_of_two && state.scale != minimum_) ||
      state.scale < minimum_ || state.scale > kMaximum ||
      state.good_steps >= window_ || state.tolerated >= hysteresis_) {
    return false;
  }
  scale_ = state.scale;
  good_ = state.good_steps;
  overflows_left_ = hysteresis_ - state.tolerated;
  return true;
}

LossScale::Event LossScale::OnOverflow() {
  ++overflows_;
  good_ = 0;
  if (!dynamic_) return Event::kExhausted;
  if (overflows_left_ > 1) {
    --overflows_left_;
    return Event::kTolerated;
  }
  if (scale_ <= minimum_) return Event::kExhausted;
  scale_ = std::max(scale_ / 2, minimum_);
  return Event::kLowered;
}

LossScale::Event LossScale::OnGood() {
  if (!dynamic_ || ++good_ < window_) return Event::kGood;
  good_ = 0;
  overflows_left_ = hysteresis_;
  if (scale_ >= kMaximum) return Event::kGood;
  scale_ *= 2;
  return Event::kRaised;
}

}  // namespace syncline::worker
