#include "worker/compute/local_updater.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "kernels/device/kernel_table.h"
#include "kernels/optimizer/finite.h"
#include "worker/compute/tensor_updates.h"

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

bool LocalUpdater::RunsOn(Device& device, OptimizerKind kind) {
  return HasTensorUpdates(device, kind);
}

const TensorUpdateKernels& LocalUpdater::kernels() const {
  return *on_device_.stream->device().kernels().tensor_update;
}

LocalUpdater::LocalUpdater(const OptimizerParams& optimizer,
                           const StepRule& rule, std::vector<Tensor> tensors)
    : LocalUpdater(optimizer, rule, std::move(tensors), OnDevice()) {}

LocalUpdater::LocalUpdater(const OptimizerParams& optimizer,
                           const StepRule& rule, std::vector<Tensor> tensors,
                           const OnDevice& on_device)
    : optimizer_(optimizer),
      rule_(rule),
      tensors_(std::move(tensors)),
      offsets_(TensorOffsets(CountsOf(tensors_))),
      on_device_(on_device),
      changes_(offsets_.back()),
      slots_(is_on_device()
                 ? 0
                 : offsets_.back() *
                       static_cast<size_t>(OptimizerSlots(optimizer))) {
  SYNCLINE_CHECK(optimizer.kind != OptimizerKind::kLamb &&
                 optimizer.kind != OptimizerKind::kFtrl);
  if (is_on_device()) {
    SYNCLINE_CHECK(RunsOn(on_device.stream->device(), optimizer.kind));
    marks_ = std::make_shared<const Stream::Marks>(
        Stream::Marks{"the values of a round's begin", "the look at gradients",
                      "the local update", "the change of a round"});
    CutChunks();
    return;
  }
  for (int slot = 0; slot < OptimizerSlots(optimizer_); ++slot) {
    const float initial = InitialSlotValue(optimizer_, slot);
    if (initial == 0) continue;
    std::fill_n(slots_.data() + slot * changes_.size(), changes_.size(),
                initial);
  }
}

LocalUpdater::Memory LocalUpdater::MemoryOf(const OptimizerParams& optimizer,
                                            absl::Span<const int64_t> counts,
                                            bool on_device) {
  const uint64_t bytes = TensorOffsets(counts).back() * sizeof(float);
  const uint64_t slots =
      bytes * static_cast<uint64_t>(OptimizerSlots(optimizer));
  if (!on_device) return {.change_bytes = bytes, .slot_bytes = slots};
  uint64_t chunks = 0;
  for (const int64_t count : counts) {
    chunks += ChunkCount(static_cast<uint64_t>(count));
  }
  return {.change_bytes = bytes,
          .device_bytes = bytes + slots +
                          chunks * (sizeof(TensorChunk) + sizeof(ChunkCheck))};
}

void LocalUpdater::Mark(Work work) {
  on_device_.stream->UseMarks(marks_);
  on_device_.stream->Mark(static_cast<uint32_t>(work));
}

void LocalUpdater::CutChunks() {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    AppendChunks(offsets_[i], tensors_[i].value.size(), tensors_[i].momentum,
                 &chunks_);
  }
  found_.resize(chunks_.size());
}

absl::Status LocalUpdater::AllocateOnDevice() {
  Stream& stream = *on_device_.stream;
  Device& device = stream.device();
  const size_t bytes = changes_.size() * sizeof(float);
  SYNCLINE_ASSIGN_OR_RETURN(
      device_chunks_, Upload(device, absl::Span<const TensorChunk>(chunks_)));
  SYNCLINE_ASSIGN_OR_RETURN(
      device_found_, device.Allocate(found_.size() * sizeof(ChunkCheck)));
  SYNCLINE_ASSIGN_OR_RETURN(device_changes_, device.Allocate(bytes));
  const auto slots = static_cast<size_t>(OptimizerSlots(optimizer_));
  SYNCLINE_ASSIGN_OR_RETURN(device_slots_, device.Allocate(bytes * slots));
  // Optimizers whose slots begin with another value have no kernel.
  stream.Clear(device_slots_.data(), device_slots_.bytes());
  stream.Clear(device_changes_.data(), device_changes_.bytes());
  pinned_changes_ = device.Pin(changes_.data(), bytes);
  return stream.Synchronize();
}

absl::Status LocalUpdater::MakeResident(const GoOnCheck& go_on) {
  for (AlignedFloats* const memory : {&changes_, &slots_}) {
    SYNCLINE_RETURN_IF_ERROR(
        TouchMemory("the values and the optimizer's state of local steps",
                    {reinterpret_cast<char*>(memory->data()),
                     memory->size() * sizeof(float)},
                    go_on));
  }
  return is_on_device() ? AllocateOnDevice() : absl::OkStatus();
}

void LocalUpdater::SetTotalClocks(int64_t clocks) {
  if (rule_.learning_rate.total_clocks == 0) {
    rule_.learning_rate.total_clocks = clocks;
  }
}

void LocalUpdater::Begin() {
  if (is_on_device()) {
    Mark(Work::kBegin);
    Stream& stream = *on_device_.stream;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      stream.CopyToDevice(on_device_.values + offsets_[i],
                          tensors_[i].value.data(),
                          tensors_[i].value.size() * sizeof(float));
    }
    stream.Copy(device_changes_.data(), on_device_.values,
                device_changes_.bytes());
    return;
  }
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

absl::Status LocalUpdater::NotFinite(size_t tensor, size_t element,
                                     float value) const {
  return absl::FailedPreconditionError(
      absl::StrCat("element ", element, " of the gradient of '",
                   tensors_[tensor].name, "' is ", value));
}

absl::Status LocalUpdater::CheckFinite() const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const absl::Span<const float> gradient = tensors_[i].gradient;
    if (AllFinite(gradient.data(), gradient.size())) continue;
    const size_t at = FirstNonFinite(gradient.data(), gradient.size());
    return NotFinite(i, at, gradient[at]);
  }
  return absl::OkStatus();
}

absl::StatusOr<double> LocalUpdater::CheckOnDevice(uint64_t samples) {
  Mark(Work::kCheck);
  Stream& stream = *on_device_.stream;
  kernels().check(stream, static_cast<int64_t>(chunks_.size()),
                  device_chunks_.as<TensorChunk>(), on_device_.gradients,
                  rule_.GradientScale(samples, -1),
                  device_found_.as<ChunkCheck>());
  stream.CopyToHost(found_.data(), device_found_.data(), device_found_.bytes());
  SYNCLINE_RETURN_IF_ERROR(stream.Synchronize());
  double squares = 0;
  for (size_t c = 0; c < chunks_.size(); ++c) {
    const int64_t first = found_[c].first_non_finite;
    if (first != ChunkCheck::kAllFinite) {
      return NotFiniteOnDevice(chunks_[c], chunks_[c].begin + first);
    }
    squares += found_[c].squares;
  }
  return rule_.clip_norm > 0 ? squares : -1;
}

absl::Status LocalUpdater::NotFiniteOnDevice(const TensorChunk& chunk,
                                             int64_t element) {
  float value = 0;
  on_device_.stream->CopyToHost(&value, on_device_.gradients + element,
                                sizeof(value));
  SYNCLINE_RETURN_IF_ERROR(on_device_.stream->Synchronize());
  const auto next = std::upper_bound(offsets_.begin(), offsets_.end(),
                                     static_cast<size_t>(chunk.begin));
  const auto tensor = static_cast<size_t>(next - offsets_.begin()) - 1;
  return NotFinite(tensor, static_cast<size_t>(element) - offsets_[tensor],
                   value);
}

absl::Status LocalUpdater::Step(int64_t clock, uint64_t samples) {
  double squares = -1;
  if (is_on_device()) {
    SYNCLINE_ASSIGN_OR_RETURN(squares, CheckOnDevice(samples));
  } else {
    SYNCLINE_RETURN_IF_ERROR(CheckFinite());
    squares = SquaredNorm(samples);
  }
  OptimizerStep step = rule_.StepAt(clock, samples, squares);
  step.t = ++updates_;
  const float of_mean = rule_.GradientScale(samples, -1);
  if (!is_on_device()) {
    StepHere(step, of_mean);
    return absl::OkStatus();
  }
  Mark(Work::kUpdate);
  float* slots[kOptimizerSlotsMax] = {};
  for (int slot = 0; slot < OptimizerSlots(optimizer_); ++slot) {
    slots[slot] = device_slots_.as<float>() + slot * changes_.size();
  }
  kernels().update(*on_device_.stream, optimizer_, step, of_mean,
                   static_cast<int64_t>(chunks_.size()),
                   device_chunks_.as<TensorChunk>(), on_device_.gradients,
                   on_device_.values, slots);
  return absl::OkStatus();  // Errors come with the next step, or with End.
}

void LocalUpdater::StepHere(const OptimizerStep& step, float scale) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& tensor = tensors_[i];
    const size_t count = tensor.value.size();
    if (tensor.momentum.has_value()) {
      AverageIn(*tensor.momentum, scale, tensor.gradient.data(),
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
}

absl::Status LocalUpdater::End(uint64_t samples) {
  const auto weight = static_cast<float>(samples);
  if (!is_on_device()) {
    EndHere(weight);
    return absl::OkStatus();
  }
  Mark(Work::kEnd);
  Stream& stream = *on_device_.stream;
  kernels().change(stream, weight, static_cast<int64_t>(chunks_.size()),
                   device_chunks_.as<TensorChunk>(), on_device_.values,
                   device_changes_.as<float>());
  stream.CopyToHost(changes_.data(), device_changes_.data(),
                    device_changes_.bytes());
  return stream.Synchronize();
}

void LocalUpdater::EndHere(float weight) {
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
