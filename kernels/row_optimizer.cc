#include "kernels/row_optimizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "common/base/check.h"
#include "kernels/loop.h"
#include "kernels/mean_gradient.h"

namespace syncline {
namespace {

// Later steps are rarer than their pow is dear: 16 KiB.
constexpr uint32_t kCorrectionsKept = 1024;

size_t StateFloats(OptimizerKind kind, size_t dim) {
  switch (kind) {
    case OptimizerKind::kRowWiseAdagrad:
      return 1;
    case OptimizerKind::kAdam:
      return 2 * dim + 1;
    default:
      return dim * OptimizerSlots(kind);
  }
}

}  // namespace

bool RowOptimizer::Supports(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
    case OptimizerKind::kAdagrad:
    case OptimizerKind::kRowWiseAdagrad:
    case OptimizerKind::kAdam:
    case OptimizerKind::kFtrl:
      return true;
    default:
      return false;
  }
}

RowOptimizer::RowOptimizer(const OptimizerParams& params, size_t dim)
    : params_(params), dim_(dim) {
  SYNCLINE_CHECK(Supports(params.kind) && dim > 0);
  state_floats_ = StateFloats(params.kind, dim);
  if (params.kind != OptimizerKind::kAdam) return;
  for (uint32_t t = 1; t <= kCorrectionsKept; ++t) {
    corrections_.push_back(AdamCorrectionAt(params, t));
  }
}

void RowOptimizer::InitState(float* state) const {
  std::fill_n(state, state_floats_, 0.0f);
  if (params_.kind == OptimizerKind::kRowWiseAdagrad) {
    state[0] = params_.initial_accumulator;
  } else if (params_.kind != OptimizerKind::kAdam && state_floats_ > 0) {
    std::fill_n(state, dim_, InitialSlotValue(params_, 0));
  }
}

void RowOptimizer::Apply(const OptimizerStep& step, const float* gradient,
                         float* value, float* state) const {
  switch (params_.kind) {
    case OptimizerKind::kRowWiseAdagrad:
      return ApplyRowWise(step, gradient, value, state);
    case OptimizerKind::kAdam:
      return ApplyLazyAdam(step, gradient, value, state);
    default:
      return ApplyOptimizer(params_, step, gradient, value, state, state + dim_,
                            dim_);
  }
}

void RowOptimizer::ApplyRowWise(const OptimizerStep& step,
                                const float* __restrict gradient,
                                float* __restrict value,
                                float* __restrict squares) const {
  const MeanGradient g(params_, step, true);
  const int64_t count = static_cast<int64_t>(dim_);
  const float sum = SumOf(count, [&](int64_t i) {
    const float mean = g.At(gradient[i], value[i]);
    return mean * mean;
  });
  const float a = *squares + sum / static_cast<float>(dim_);
  *squares = a;
  const float divisor = std::sqrt(a) + params_.epsilon;
  const float rate = step.learning_rate;
  for (int64_t i = 0; i < count; ++i) {
    value[i] -= rate * g.At(gradient[i], value[i]) / divisor;
  }
}

void RowOptimizer::ApplyLazyAdam(const OptimizerStep& step,
                                 const float* gradient, float* value,
                                 float* state) const {
  float* const count = state + 2 * dim_;
  const uint32_t before = std::bit_cast<uint32_t>(*count);
  const uint32_t t =
      before + (before < std::numeric_limits<uint32_t>::max() ? 1 : 0);
  *count = std::bit_cast<float>(t);
  const AdamCorrection correction = t <= kCorrectionsKept
                                        ? corrections_[t - 1]
                                        : AdamCorrectionAt(params_, t);
  ApplyAdam(params_, step, correction, gradient, value, state, state + dim_,
            dim_);
}

}  // namespace syncline
