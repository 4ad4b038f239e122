#include "worker/compute/late_gradient.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/check.h"

namespace syncline::worker {
namespace {

size_t ElementsOf(absl::Span<const LateGradient::Tensor> tensors) {
  size_t count = 0;
  for (const LateGradient::Tensor& tensor : tensors) {
    if (!tensor.is_running_mean) count += tensor.value.size();
  }
  return count;
}

}  // namespace

LateGradient::LateGradient(std::optional<float> lambda,
                           std::vector<Tensor> tensors)
    : lambda_(lambda),
      tensors_(std::move(tensors)),
      values_(lambda.has_value() ? ElementsOf(tensors_) : 0) {}

uint64_t LateGradient::BytesOf(absl::Span<const int64_t> counts) {
  return sizeof(float) * static_cast<uint64_t>(std::accumulate(
                             counts.begin(), counts.end(), int64_t{0}));
}

absl::Status LateGradient::MakeResident(const GoOnCheck& go_on) {
  return TouchMemory(
      "the values that late gradients were computed with",
      {reinterpret_cast<char*>(values_.data()), values_.size() * sizeof(float)},
      go_on);
}

void LateGradient::BeginStep() {
  kept_.reset();
  if (!lambda_.has_value()) return;
  float* to = values_.data();
  for (const Tensor& tensor : tensors_) {
    if (tensor.is_running_mean) continue;
    to = std::copy(tensor.value.begin(), tensor.value.end(), to);
  }
}

void LateGradient::Keep(int64_t clock, uint64_t samples, double loss_sum) {
  kept_ = {.clock = clock, .samples = samples, .loss_sum = loss_sum};
}

LateGradient::Late LateGradient::Take(int64_t open,
                                      absl::Span<const Rows> rows) {
  SYNCLINE_CHECK(kept_.has_value() && open > kept_->clock &&
                 kept_->samples > 0);
  const Late late = *std::exchange(kept_, std::nullopt);
  const float* before = values_.data();
  for (const Tensor& tensor : tensors_) {
    if (tensor.is_running_mean) continue;
    Change(late, open, tensor.gradient, before, tensor.value.data());
    if (compensates()) before += tensor.gradient.size();
  }
  for (const Rows& table : rows) {
    SYNCLINE_CHECK(!compensates() ||
                   (table.before.size() == table.gradient.size() &&
                    table.value.size() == table.gradient.size()));
    Change(late, open, table.gradient, table.before.data(), table.value.data());
  }
  return late;
}

void LateGradient::Change(const Late& late, int64_t open,
                          absl::Span<float> gradient, const float* before,
                          const float* value) const {
  if (!compensates()) {
    const float scale = 1.0f / static_cast<float>(1 + open - late.clock);
    for (float& g : gradient) g *= scale;
    return;
  }
  const float weight = *lambda_ / static_cast<float>(late.samples);
  for (size_t i = 0; i < gradient.size(); ++i) {
    // No square of a gradient where its value has not changed.
    gradient[i] +=
        gradient[i] * (weight * (value[i] - before[i]) * gradient[i]);
  }
}

}  // namespace syncline::worker
