#include "kernels/optimizer/optimizer.h"

#include <cmath>

#include "common/base/check.h"
#include "kernels/optimizer/element_update.h"
#include "kernels/optimizer/mean_gradient.h"

namespace syncline {
namespace {

void Sgd(const OptimizerParams& params, const OptimizerStep& step,
         const float* __restrict gradient, float* __restrict value,
         size_t count) {
  const SgdElement update(params, step);
  for (size_t i = 0; i < count; ++i) update(gradient[i], value[i]);
}

void Momentum(const OptimizerParams& params, const OptimizerStep& step,
              const float* __restrict gradient, float* __restrict value,
              float* __restrict velocity, size_t count) {
  const MomentumElement update(params, step);
  for (size_t i = 0; i < count; ++i) update(gradient[i], value[i], velocity[i]);
}

void Nesterov(const OptimizerParams& params, const OptimizerStep& step,
              const float* __restrict gradient, float* __restrict value,
              float* __restrict velocity, size_t count) {
  const MeanGradient g(params, step, true);
  const float rate = step.learning_rate;
  const float momentum = params.momentum;
  for (size_t i = 0; i < count; ++i) {
    const float mean = g.At(gradient[i], value[i]);
    const float v = momentum * velocity[i] + mean;
    velocity[i] = v;
    value[i] -= rate * (mean + momentum * v);
  }
}

void Adagrad(const OptimizerParams& params, const OptimizerStep& step,
             const float* __restrict gradient, float* __restrict value,
             float* __restrict squares, size_t count) {
  const MeanGradient g(params, step, true);
  const float rate = step.learning_rate;
  const float epsilon = params.epsilon;
  for (size_t i = 0; i < count; ++i) {
    const float mean = g.At(gradient[i], value[i]);
    const float a = squares[i] + mean * mean;
    squares[i] = a;
    value[i] -= rate * mean / (std::sqrt(a) + epsilon);
  }
}

// A part that the parameters leave out is not in the loop. `squares` is at
// least the square of its mean, apart from rounding; hence the comparison,
// which lets NaN through.
template <bool kCentered, bool kMomentum>
void RmsProp(const OptimizerParams& params, const OptimizerStep& step,
             const float* __restrict gradient, float* __restrict value,
             float* __restrict squares, float* __restrict means,
             float* __restrict velocity, size_t count) {
  const MeanGradient g(params, step, true);
  const float rate = step.learning_rate;
  const float decay = params.decay;
  const float rest = 1 - decay;
  const float momentum = params.momentum;
  const float epsilon = params.epsilon;
  for (size_t i = 0; i < count; ++i) {
    const float mean = g.At(gradient[i], value[i]);
    float s = decay * squares[i] + rest * (mean * mean);
    squares[i] = s;
    if constexpr (kCentered) {
      const float m = decay * means[i] + rest * mean;
      means[i] = m;
      const float variance = s - m * m;
      s = variance < 0 ? 0 : variance;
    }
    float update = mean / (std::sqrt(s) + epsilon);
    if constexpr (kMomentum) {
      update += momentum * velocity[i];
      velocity[i] = update;
    }
    value[i] -= rate * update;
  }
}

void ApplyRmsProp(const OptimizerParams& params, const OptimizerStep& step,
                  const float* gradient, float* value, float* const* slots,
                  size_t count) {
  const bool momentum = params.momentum != 0;
  if (params.centered) {
    const auto apply = momentum ? RmsProp<true, true> : RmsProp<true, false>;
    return apply(params, step, gradient, value, slots[0], slots[1],
                 momentum ? slots[2] : nullptr, count);
  }
  const auto apply = momentum ? RmsProp<false, true> : RmsProp<false, false>;
  apply(params, step, gradient, value, slots[0], nullptr,
        momentum ? slots[1] : nullptr, count);
}

// power(n) is n^-learning_rate_power.
template <typename Power>
void Ftrl(const OptimizerParams& params, const OptimizerStep& step, Power power,
          const float* __restrict gradient, float* __restrict value,
          float* __restrict squares, float* __restrict linear, size_t count) {
  if (step.learning_rate == 0) return;
  const MeanGradient g(params, step, true);
  const float inverse_rate = 1 / step.learning_rate;
  const float l1 = params.l1;
  const float l2 = params.l2;
  for (size_t i = 0; i < count; ++i) {
    const float mean = g.At(gradient[i], value[i]);
    const float n = squares[i] + mean * mean;
    const float strength = power(n) * inverse_rate;
    const float sigma = strength - power(squares[i]) * inverse_rate;
    const float z = linear[i] + (mean - sigma * value[i]);
    squares[i] = n;
    linear[i] = z;
    const float moved = (std::copysign(l1, z) - z) / (strength + l2);
    const float kept = std::fabs(z) <= l1 ? 0 : moved;
    value[i] = n == 0 ? value[i] : kept;
  }
}

void ApplyFtrl(const OptimizerParams& params, const OptimizerStep& step,
               const float* gradient, float* value, float* squares,
               float* linear, size_t count) {
  const float power = -params.learning_rate_power;
  if (power == 0.5f) {
    const auto root = [](float n) { return std::sqrt(n); };
    return Ftrl(params, step, root, gradient, value, squares, linear, count);
  }
  const auto any = [power](float n) { return std::pow(n, power); };
  Ftrl(params, step, any, gradient, value, squares, linear, count);
}

// Adam's step by a first moment that is given over the second one's root.
void ApplyMoment(const OptimizerParams& params, const OptimizerStep& step,
                 const float* __restrict moment, float* __restrict value,
                 float* __restrict first, const float* __restrict second,
                 size_t count) {
  const FrozenAdam adam(params, step.frozen_t, /*workers=*/1);
  const float scale = step.gradient_scale;
  const float shrink = params.kind == OptimizerKind::kAdamW
                           ? step.learning_rate * params.weight_decay
                           : 0;
  const auto rate = static_cast<float>(step.learning_rate /
                                       AdamCorrectionAt(params, step.t).first);
  for (size_t i = 0; i < count; ++i) {
    const float over_root = moment[i] * scale;
    first[i] = over_root * adam.Root(second[i]);
    const float kept = value[i] - shrink * value[i];
    value[i] = kept - rate * over_root;
  }
}

}  // namespace

int OptimizerSlots(const OptimizerParams& params) {
  switch (params.kind) {
    case OptimizerKind::kSgd:
      return 0;
    case OptimizerKind::kMomentum:
    case OptimizerKind::kNesterov:
    case OptimizerKind::kAdagrad:
      return 1;
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
    case OptimizerKind::kLamb:
    case OptimizerKind::kFtrl:
      return 2;
    case OptimizerKind::kRmsProp:
      return 1 + (params.centered ? 1 : 0) + (params.momentum != 0 ? 1 : 0);
    case OptimizerKind::kRowWiseAdagrad:
      break;
  }
  SYNCLINE_CHECK(false && "not an optimizer of dense tensors");
}

float InitialSlotValue(const OptimizerParams& params, int slot) {
  const bool squares = params.kind == OptimizerKind::kAdagrad ||
                       params.kind == OptimizerKind::kFtrl;
  return squares && slot == 0 ? params.initial_accumulator : 0;
}

void ApplyOptimizer(const OptimizerParams& params, const OptimizerStep& step,
                    const float* gradient, float* value, float* const* slots,
                    size_t count) {
  switch (params.kind) {
    case OptimizerKind::kSgd:
      return Sgd(params, step, gradient, value, count);
    case OptimizerKind::kMomentum:
      return Momentum(params, step, gradient, value, slots[0], count);
    case OptimizerKind::kNesterov:
      return Nesterov(params, step, gradient, value, slots[0], count);
    case OptimizerKind::kAdagrad:
      return Adagrad(params, step, gradient, value, slots[0], count);
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      if (step.frozen_t > 0) {
        return ApplyMoment(params, step, gradient, value, slots[0], slots[1],
                           count);
      }
      return ApplyAdam(params, step, AdamCorrectionAt(params, step.t), gradient,
                       value, slots[0], slots[1], count);
    case OptimizerKind::kRmsProp:
      return ApplyRmsProp(params, step, gradient, value, slots, count);
    case OptimizerKind::kFtrl:
      return ApplyFtrl(params, step, gradient, value, slots[0], slots[1],
                       count);
    case OptimizerKind::kLamb:
    case OptimizerKind::kRowWiseAdagrad:
      break;
  }
  SYNCLINE_CHECK(false && "not one pass over a dense tensor");
}

FrozenAdam::FrozenAdam(const OptimizerParams& params, int64_t frozen_t,
                       uint32_t workers)
    : beta1(params.beta1),
      root_scale(static_cast<float>(
          1 / AdamCorrectionAt(params, frozen_t).second_root)),
      epsilon(params.epsilon),
      most(
          static_cast<float>(std::sqrt(workers / (1 - double{params.beta2})))) {
}

AdamCorrection AdamCorrectionAt(const OptimizerParams& params, int64_t t) {
  const double updates = static_cast<double>(t);
  return {.first = 1 - std::pow(static_cast<double>(params.beta1), updates),
          .second_root = std::sqrt(
              1 - std::pow(static_cast<double>(params.beta2), updates))};
}

void ApplyAdam(const OptimizerParams& params, const OptimizerStep& step,
               const AdamCorrection& correction,
               const float* __restrict gradient, float* __restrict value,
               float* __restrict first, float* __restrict second,
               size_t count) {
  const AdamElement update(params, step, correction);
  for (size_t i = 0; i < count; ++i) {
    update(gradient[i], value[i], first[i], second[i]);
  }
}

double AddSquares(double sum, const float* gradient, float scale,
                  size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const double mean = gradient[i] * scale;
    sum += mean * mean;
  }
  return sum;
}

void AverageIn(float momentum, float scale, const float* __restrict sum,
               float* __restrict value, size_t count) {
  const AverageElement update(momentum, scale);
  for (size_t i = 0; i < count; ++i) update(sum[i], value[i]);
}

void AddTo(const float* __restrict addend, float* __restrict sum,
           size_t count) {
  for (size_t i = 0; i < count; ++i) sum[i] += addend[i];
}

}  // namespace syncline
