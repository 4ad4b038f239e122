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

LateGradient::Late LateGradient::Take(int64_t open) {
  SYNCLINE_CHECK(kept_.has_value() && open > kept_->clock &&
                 kept_->samples > 0);
  const Late late = *std::exchange(kept_, std::nullopt);
  const float scale = 1.0f / static_cast<float>(1 + open - late.clock);
  const float* before = values_.data();
  for (const Tensor& tensor : tensors_) {
    if (tensor.is_running_mean) continue;
    const size_t count = tensor.gradient.size();
    float* const gradient = tensor.gradient.data();
    if (!lambda_.has_value()) {
      for (size_t i = 0; i < count; ++i) gradient[i] *= scale;
      continue;
    }
    const float weight = *lambda_ / static_cast<float>(late.samples);
    const float* const value = tensor.value.data();
    for (size_t i = 0; i < count; ++i) {
      // No square of a gradient where its value has not changed.
      gradient[i] +=
          gradient[i] * (weight * (value[i] - before[i]) * gradient[i]);
    }
    before += count;
  }
  return late;
}

}  // namespace syncline::worker
