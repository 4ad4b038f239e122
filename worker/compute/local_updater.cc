#include "worker/compute/local_updater.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "kernels/optimizer/finite.h"

namespace syncline::worker {
namespace {

std::vector<int64_t> CountsOf(absl::Span<const LocalUpdater::Tensor> tensors) {
  std::vector<int64_t> counts;
  for (const LocalUpdater::Tensor& tensor : tensors) {
    counts.push_back(static_cast<int64_t>(tensor.value.size()));
  }
  return counts;
}

}  // namespace

std::vector<size_t> LocalUpdater::OffsetsOf(absl::Span<const int64_t> counts) {
  constexpr size_t kLine = kCacheLineBytes / sizeof(float);
  std::vector<size_t> offsets = {0};
  for (const int64_t count : counts) {
    const size_t lines = (static_cast<size_t>(count) + kLine - 1) / kLine;
    offsets.push_back(offsets.back() + lines * kLine);
  }
  return offsets;
}

LocalUpdater::LocalUpdater(const OptimizerParams& optimizer,
                           const StepRule& rule, std::vector<Tensor> tensors)
    : optimizer_(optimizer),
      rule_(rule),
      tensors_(std::move(tensors)),
      offsets_(OffsetsOf(CountsOf(tensors_))),
      changes_(offsets_.back()),
      slots_(offsets_.back() * static_cast<size_t>(OptimizerSlots(optimizer))) {
  SYNCLINE_CHECK(optimizer.kind != OptimizerKind::kLamb &&
                 optimizer.kind != OptimizerKind::kFtrl);
  for (int slot = 0; slot < OptimizerSlots(optimizer_); ++slot) {
    const float initial = InitialSlotValue(optimizer_, slot);
    if (initial == 0) continue;
    std::fill_n(slots_.data() + slot * changes_.size(), changes_.size(),
                initial);
  }
}

LocalUpdater::Memory LocalUpdater::MemoryOf(const OptimizerParams& optimizer,
                                            absl::Span<const int64_t> counts) {
  const uint64_t bytes = OffsetsOf(counts).back() * sizeof(float);
  return {
      .change_bytes = bytes,
      .slot_bytes = bytes * static_cast<uint64_t>(OptimizerSlots(optimizer))};
}

absl::Status LocalUpdater::MakeResident(const GoOnCheck& go_on) {
  for (AlignedFloats* const memory : {&changes_, &slots_}) {
    SYNCLINE_RETURN_IF_ERROR(
        TouchMemory("the values and the optimizer's state of local steps",
                    {reinterpret_cast<char*>(memory->data()),
                     memory->size() * sizeof(float)},
                    go_on));
  }
  return absl::OkStatus();
}

void LocalUpdater::SetTotalClocks(int64_t clocks) {
  if (rule_.learning_rate.total_clocks == 0) {
    rule_.learning_rate.total_clocks = clocks;
  }
}

void LocalUpdater::Begin() {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const absl::Span<float> value = tensors_[i].value;
    std::copy(value.begin(), value.end(), changes_.data() + offsets_[i]);
  }
}

double LocalUpdater::SquaredNorm(uint64_t samples) const {
  if (rule_.clip_norm <= 0) return -1;
  const float scale = rule_.GradientScale(samples, -1);
  double squares = 0;
  for (const Tensor& tensor : tensors_) {
    if (tensor.momentum.has_value()) continue;
    squares = AddSquares(squares, tensor.gradient.data(), scale,
                         tensor.gradient.size());
  }
  return squares;
}

absl::Status LocalUpdater::Step(int64_t clock, uint64_t samples) {
  for (const Tensor& tensor : tensors_) {
    const absl::Span<const float> gradient = tensor.gradient;
    if (AllFinite(gradient.data(), gradient.size())) continue;
    const size_t at = FirstNonFinite(gradient.data(), gradient.size());
    return absl::FailedPreconditionError(
        absl::StrCat("element ", at, " of the gradient of '", tensor.name,
                     "' is ", gradient[at]));
  }
  OptimizerStep step = rule_.StepAt(clock, samples, SquaredNorm(samples));
  step.t = ++updates_;
  const float of_mean = rule_.GradientScale(samples, -1);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& tensor = tensors_[i];
    const size_t count = tensor.value.size();
    if (tensor.momentum.has_value()) {
      AverageIn(*tensor.momentum, of_mean, tensor.gradient.data(),
                tensor.value.data(), count);
      continue;
    }
    float* slots[kOptimizerSlotsMax] = {};
    for (int slot = 0; slot < OptimizerSlots(optimizer_); ++slot) {
      slots[slot] = SlotOf(i, slot);
    }
    ApplyOptimizer(optimizer_, step, tensor.gradient.data(),
                   tensor.value.data(), slots, count);
  }
  return absl::OkStatus();
}

void LocalUpdater::End(uint64_t samples) {
  const auto weight = static_cast<float>(samples);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& tensor = tensors_[i];
    float* const change = changes_.data() + offsets_[i];
    const float* const value = tensor.value.data();
    const size_t count = tensor.value.size();
    if (tensor.momentum.has_value()) {
      for (size_t k = 0; k < count; ++k) change[k] = value[k] * weight;
      continue;
    }
    for (size_t k = 0; k < count; ++k) {
      change[k] = (change[k] - value[k]) * weight;
    }
  }
}

}  // namespace syncline::worker
