#include "kernels/optimizer/lamb.h"

#include <algorithm>
#include <cmath>

#include "kernels/optimizer/mean_gradient.h"

namespace syncline {
namespace {

// The sums are one addition after the other; what they add is computed apart,
// in a piece that stays in the first-level cache, so that it vectorises.
constexpr size_t kPiece = 512;

// The update as both passes compute it: the same expression, the same bits.
class Update {
 public:
  Update(const OptimizerParams& params, const OptimizerStep& step)
      : epsilon_(params.epsilon), decay_(params.weight_decay) {
    const AdamCorrection correction = AdamCorrectionAt(params, step.t);
    first_scale_ = static_cast<float>(1 / correction.first);
    root_scale_ = static_cast<float>(1 / correction.second_root);
  }
  float At(float value, float first, float second) const {
    return first * first_scale_ / (std::sqrt(second) * root_scale_ + epsilon_) +
           decay_ * value;
  }

 private:
  const float epsilon_;
  const float decay_;
  float first_scale_ = 1;
  float root_scale_ = 1;
};

}  // namespace

void AdvanceLamb(const OptimizerParams& params, const OptimizerStep& step,
                 const float* __restrict gradient,
                 const float* __restrict value, float* __restrict first,
                 float* __restrict second, size_t count, LambNorms* norms) {
  const MeanGradient g(params, step, /*decay=*/false);
  const Update update(params, step);
  const float beta1 = params.beta1;
  const float beta2 = params.beta2;
  const float rest1 = 1 - beta1;
  const float rest2 = 1 - beta2;
  float updates[kPiece];
  double value_sum = norms->value;
  double update_sum = norms->update;
  for (size_t begin = 0; begin < count; begin += kPiece) {
    const size_t end = std::min(count, begin + kPiece);
    for (size_t i = begin; i < end; ++i) {
      const float mean = g.At(gradient[i], value[i]);
      const float m = beta1 * first[i] + rest1 * mean;
      const float s = beta2 * second[i] + rest2 * (mean * mean);
      first[i] = m;
      second[i] = s;
      updates[i - begin] = update.At(value[i], m, s);
    }
    for (size_t i = begin; i < end; ++i) {
      const double v = value[i];
      const double u = updates[i - begin];
      value_sum += v * v;
      update_sum += u * u;
    }
  }
  *norms = {value_sum, update_sum};
}

double LambTrustRatio(const LambNorms& norms) {
  if (norms.value == 0 || norms.update == 0) return 1;
  return std::sqrt(norms.value) / std::sqrt(norms.update);
}

std::vector<double> LambTrustRatios(absl::Span<const double> norms) {
  std::vector<double> ratios;
  for (size_t i = 0; i + 1 < norms.size(); i += 2) {
    ratios.push_back(LambTrustRatio({norms[i], norms[i + 1]}));
  }
  return ratios;
}

void ApplyLamb(const OptimizerParams& params, const OptimizerStep& step,
               double trust_ratio, float* __restrict value,
               const float* __restrict first, const float* __restrict second,
               size_t count) {
  const Update update(params, step);
  const float rate = static_cast<float>(step.learning_rate * trust_ratio);
  for (size_t i = 0; i < count; ++i) {
    value[i] -= rate * update.At(value[i], first[i], second[i]);
  }
}

}  // namespace syncline
