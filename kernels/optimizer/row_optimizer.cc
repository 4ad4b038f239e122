#include "kernels/optimizer/row_optimizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "common/base/check.h"
#include "kernels/elementwise/loop.h"
#include "kernels/optimizer/mean_gradient.h"

namespace syncline {
namespace {

// Later steps are rarer than their pow is dear: 16 KiB.
constexpr uint32_t kCorrectionsKept = 1024;

size_t StateFloats(const OptimizerParams& params, size_t dim) {
  switch (params.kind) {
    case OptimizerKind::kRowWiseAdagrad:
      return 1;
    case OptimizerKind::kAdam:
      return 2 * dim + 1;
    default:
      return dim * OptimizerSlots(params);
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
  state_floats_ = StateFloats(params, dim);
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

void RowOptimizer::Apply(const OptimizerStep& step, size_t count,
                         const float* const* gradients,
                         float* const* rows) const {
  if (params_.kind == OptimizerKind::kRowWiseAdagrad) {
    return ApplyRowWise(step, count, gradients, rows);
  }
  for (size_t i = 0; i < count; ++i) {
    if (params_.kind == OptimizerKind::kAdam) {
      ApplyLazyAdam(step, gradients[i], rows[i]);
    } else {
      float* const slots[] = {rows[i] + dim_, rows[i] + 2 * dim_};
      ApplyOptimizer(params_, step, gradients[i], rows[i], slots, dim_);
    }
  }
}

// All rows in one call: what is the same for them is prepared once, which for
// short rows takes as long as a row.
void RowOptimizer::ApplyRowWise(const OptimizerStep& step, size_t count,
                                const float* const* gradients,
                                float* const* rows) const {
  const MeanGradient g(params_, step, true);
  const int64_t dim = static_cast<int64_t>(dim_);
  const float float_dim = static_cast<float>(dim_);
  const float epsilon = params_.epsilon;
  const float rate = step.learning_rate;
  for (size_t i = 0; i < count; ++i) {
    const float* __restrict gradient = gradients[i];
    float* __restrict value = rows[i];
    const float sum = SumOf(dim, [&](int64_t j) {
      const float mean = g.At(gradient[j], value[j]);
      return mean * mean;
    });
    const float a = value[dim] + sum / float_dim;
    const float divisor = std::sqrt(a) + epsilon;
    for (int64_t j = 0; j < dim; ++j) {
      value[j] -= rate * g.At(gradient[j], value[j]) / divisor;
    }
    value[dim] = a;
  }
}

void RowOptimizer::ApplyLazyAdam(const OptimizerStep& step,
                                 const float* gradient, float* row) const {
  float* const first = row + dim_;
  float* const count = first + 2 * dim_;
  const uint32_t before = std::bit_cast<uint32_t>(*count);
  const uint32_t t =
      before + (before < std::numeric_limits<uint32_t>::max() ? 1 : 0);
  *count = std::bit_cast<float>(t);
  const AdamCorrection correction = t <= kCorrectionsKept
                                        ? corrections_[t - 1]
                                        : AdamCorrectionAt(params_, t);
  ApplyAdam(params_, step, correction, gradient, row, first, first + dim_,
            dim_);
}

}  // namespace syncline
