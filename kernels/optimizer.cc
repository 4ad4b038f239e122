#include "kernels/optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace syncline {
namespace {

// The gradient as every optimizer sees it. Without branches, so that loops
// vectorise: no clipping is clipping at infinity, no decay is decay by zero.
class Gradient {
 public:
  Gradient(const OptimizerParams& params, const OptimizerStep& step, bool decay)
      : scale_(step.gradient_scale),
        limit_(params.clip_value > 0 ? params.clip_value
                                     : std::numeric_limits<float>::infinity()),
        decay_(decay ? params.weight_decay : 0) {}

  float At(float gradient, float value) const {
    const float mean = gradient * scale_;
    // Comparisons with NaN are false, so NaN passes through both.
    const float above = mean < -limit_ ? -limit_ : mean;
    const float clipped = above > limit_ ? limit_ : above;
    return clipped + decay_ * value;
  }

 private:
  const float scale_;
  const float limit_;
  const float decay_;
};

void Sgd(const OptimizerParams& params, const OptimizerStep& step,
         const float* __restrict gradient, float* __restrict value,
         size_t count) {
  const Gradient g(params, step, true);
  const float rate = step.learning_rate;
  for (size_t i = 0; i < count; ++i) {
    value[i] -= rate * g.At(gradient[i], value[i]);
  }
}

void Momentum(const OptimizerParams& params, const OptimizerStep& step,
              const float* __restrict gradient, float* __restrict value,
              float* __restrict velocity, size_t count) {
  const Gradient g(params, step, true);
  const float rate = step.learning_rate;
  const float momentum = params.momentum;
  for (size_t i = 0; i < count; ++i) {
    const float v = momentum * velocity[i] + g.At(gradient[i], value[i]);
    velocity[i] = v;
    value[i] -= rate * v;
  }
}

void Nesterov(const OptimizerParams& params, const OptimizerStep& step,
              const float* __restrict gradient, float* __restrict value,
              float* __restrict velocity, size_t count) {
  const Gradient g(params, step, true);
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
  const Gradient g(params, step, true);
  const float rate = step.learning_rate;
  const float epsilon = params.epsilon;
  for (size_t i = 0; i < count; ++i) {
    const float mean = g.At(gradient[i], value[i]);
    const float a = squares[i] + mean * mean;
    squares[i] = a;
    value[i] -= rate * mean / (std::sqrt(a) + epsilon);
  }
}

// Adam, and AdamW: they differ in where the decay goes.
void Adam(const OptimizerParams& params, const OptimizerStep& step,
          const float* __restrict gradient, float* __restrict value,
          float* __restrict first, float* __restrict second, size_t count) {
  const bool decoupled = params.kind == OptimizerKind::kAdamW;
  const Gradient g(params, step, !decoupled);
  const float shrink = decoupled ? step.learning_rate * params.weight_decay : 0;
  const float beta1 = params.beta1;
  const float beta2 = params.beta2;
  const float rest1 = 1 - beta1;
  const float rest2 = 1 - beta2;
  const float epsilon = params.epsilon;
  // Moments start at zero; these undo that bias.
  const double t = static_cast<double>(step.t);
  const double correction1 = 1 - std::pow(static_cast<double>(beta1), t);
  const double correction2 = 1 - std::pow(static_cast<double>(beta2), t);
  const float rate = static_cast<float>(step.learning_rate / correction1);
  const float root_scale = static_cast<float>(1 / std::sqrt(correction2));
  for (size_t i = 0; i < count; ++i) {
    const float mean = g.At(gradient[i], value[i]);
    const float m = beta1 * first[i] + rest1 * mean;
    const float s = beta2 * second[i] + rest2 * (mean * mean);
    first[i] = m;
    second[i] = s;
    const float kept = value[i] - shrink * value[i];
    value[i] = kept - rate * m / (std::sqrt(s) * root_scale + epsilon);
  }
}

}  // namespace

int OptimizerSlots(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return 0;
    case OptimizerKind::kMomentum:
    case OptimizerKind::kNesterov:
    case OptimizerKind::kAdagrad:
      return 1;
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      return 2;
  }
  return 0;
}

float InitialSlotValue(const OptimizerParams& params, int slot) {
  return params.kind == OptimizerKind::kAdagrad && slot == 0
             ? params.initial_accumulator
             : 0;
}

void ApplyOptimizer(const OptimizerParams& params, const OptimizerStep& step,
                    const float* gradient, float* value, float* slot0,
                    float* slot1, size_t count) {
  switch (params.kind) {
    case OptimizerKind::kSgd:
      return Sgd(params, step, gradient, value, count);
    case OptimizerKind::kMomentum:
      return Momentum(params, step, gradient, value, slot0, count);
    case OptimizerKind::kNesterov:
      return Nesterov(params, step, gradient, value, slot0, count);
    case OptimizerKind::kAdagrad:
      return Adagrad(params, step, gradient, value, slot0, count);
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      return Adam(params, step, gradient, value, slot0, slot1, count);
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

void AddTo(const float* __restrict addend, float* __restrict sum,
           size_t count) {
  for (size_t i = 0; i < count; ++i) sum[i] += addend[i];
}

}  // namespace syncline
