#include "worker/compute/device_updater.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/system/memory_claim.h"
#include "kernels/device/kernel_table.h"
#include "worker/compute/tensor_updates.h"

namespace syncline::worker {
namespace {

bool AreSame(const OptimizerStep& a, const OptimizerStep& b) {
  return a.learning_rate == b.learning_rate &&
         a.gradient_scale == b.gradient_scale && a.t == b.t &&
         a.frozen_t == b.frozen_t;
}

}  // namespace

DeviceUpdater::DeviceUpdater(const OptimizerParams& optimizer,
                             DeviceTensors tensors,
                             absl::Span<const int64_t> counts,
                             std::vector<Block> blocks)
    : optimizer_(optimizer),
      tensors_(std::move(tensors)),
      offsets_(TensorOffsets(counts)),
      blocks_(std::move(blocks)),
      marks_(std::make_shared<const Stream::Marks>(
          Stream::Marks{"the values of a step", "the sums of gradients",
                        "the update", "values and the optimizer's state"})) {
  SYNCLINE_CHECK(HasTensorUpdates(tensors_.stream->device(), optimizer.kind));
  for (const Block& block : blocks_) {
    first_chunk_.push_back(chunks_.size());
    AppendChunks(PlaceOf(block), block.count, block.momentum, &chunks_);
  }
  first_chunk_.push_back(chunks_.size());
}

DeviceUpdater::~DeviceUpdater() { TakeValues(false); }

uint64_t DeviceUpdater::DeviceBytes(const OptimizerParams& optimizer,
                                    absl::Span<const int64_t> counts,
                                    absl::Span<const Block> blocks) {
  uint64_t chunks = 0;
  for (const Block& block : blocks) chunks += ChunkCount(block.count);
  return TensorOffsets(counts).back() * sizeof(float) *
             static_cast<uint64_t>(1 + OptimizerSlots(optimizer)) +
         chunks * sizeof(TensorChunk);
}

absl::Status DeviceUpdater::Allocate() {
  Stream& stream = *tensors_.stream;
  Device& device = stream.device();
  const size_t bytes =
      offsets_.back() * sizeof(float) * static_cast<size_t>(arrays());
  SYNCLINE_RETURN_IF_ERROR(CheckMemoryFor(
      absl::StrCat("values and the optimizer's state on ", device.name()),
      bytes + chunks_.size() * sizeof(TensorChunk),
      [&device] { return device.FreeBytes(); }));
  SYNCLINE_ASSIGN_OR_RETURN(
      device_chunks_, Upload(device, absl::Span<const TensorChunk>(chunks_)));
  SYNCLINE_ASSIGN_OR_RETURN(state_, device.Allocate(bytes));
  SYNCLINE_ASSIGN_OR_RETURN(copied_, device.MakeEvent());
  stream.Clear(state_.data(), bytes);
  return stream.Synchronize();
}

void DeviceUpdater::Mark(Work work) {
  tensors_.stream->UseMarks(marks_);
  tensors_.stream->Mark(static_cast<uint32_t>(work));
}

absl::Status DeviceUpdater::LoadState(
    absl::FunctionRef<absl::Span<const float>(uint32_t block, int array)>
        array_of) {
  Mark(Work::kShow);
  for (uint32_t b = 0; b < blocks_.size(); ++b) {
    for (int array = 0; array < arrays(); ++array) {
      tensors_.stream->CopyToDevice(Array(array) + PlaceOf(blocks_[b]),
                                    array_of(b, array).data(),
                                    blocks_[b].count * sizeof(float));
    }
  }
  return tensors_.stream->Synchronize();
}

void DeviceUpdater::ShowValues() {
  Mark(Work::kShow);
  tensors_.stream->Copy(tensors_.values, Array(0),
                        offsets_.back() * sizeof(float));
}

void DeviceUpdater::CopySum(uint32_t block) {
  Mark(Work::kCopy);
  const absl::Span<const float> from = sum(block);
  tensors_.stream->CopyToDevice(tensors_.gradients + PlaceOf(blocks_[block]),
                                from.data(), from.size() * sizeof(float));
}

absl::Status DeviceUpdater::AwaitCopies() { return copied_->Wait(); }

void DeviceUpdater::Update(absl::Span<const BlockStep> steps) {
  copied_->Record(*tensors_.stream);
  Mark(Work::kUpdate);
  // Neighbours whose steps are the same are one launch; running means have
  // none.
  size_t first = 0;
  while (first < steps.size()) {
    std::optional<OptimizerStep> step = steps[first].step;
    size_t last = first + 1;
    for (; last < steps.size(); ++last) {
      const BlockStep& next = steps[last];
      if (next.block != steps[last - 1].block + 1 ||
          next.scale_of_mean != steps[first].scale_of_mean) {
        break;
      }
      if (!next.step.has_value()) continue;
      if (step.has_value() && !AreSame(*step, *next.step)) break;
      step = next.step;
    }
    Launch(steps[first].block, steps[last - 1].block + 1,
           step.value_or(OptimizerStep()), steps[first].scale_of_mean);
    first = last;
  }
}

void DeviceUpdater::Launch(uint32_t first, uint32_t last,
                           const OptimizerStep& step, float scale_of_mean) {
  float* slots[kOptimizerSlotsMax] = {};
  for (int slot = 0; slot + 1 < arrays(); ++slot) {
    slots[slot] = Array(1 + slot);
  }
  const size_t begin = first_chunk_[first];
  const TensorUpdateKernels& kernels =
      *tensors_.stream->device().kernels().tensor_update;
  kernels.update(*tensors_.stream, optimizer_, step, scale_of_mean,
                 static_cast<int64_t>(first_chunk_[last] - begin),
                 device_chunks_.as<TensorChunk>() + begin, tensors_.gradients,
                 Array(0), slots);
  ++launches_;
}

absl::Status DeviceUpdater::ReadState(
    absl::FunctionRef<absl::Span<float>(uint32_t block, int array)> to) {
  Mark(Work::kRead);
  for (uint32_t b = 0; b < blocks_.size(); ++b) {
    for (int array = 0; array < arrays(); ++array) {
      const absl::Span<float> floats = to(b, array);
      if (floats.empty()) continue;
      tensors_.stream->CopyToHost(floats.data(),
                                  Array(array) + PlaceOf(blocks_[b]),
                                  floats.size() * sizeof(float));
    }
  }
  return tensors_.stream->Synchronize();
}

absl::Status DeviceUpdater::ReadValues(absl::Span<const absl::Span<float>> to) {
  Mark(Work::kRead);
  for (size_t tensor = 0; tensor < to.size(); ++tensor) {
    tensors_.stream->CopyToHost(to[tensor].data(), Array(0) + offsets_[tensor],
                                to[tensor].size() * sizeof(float));
  }
  return tensors_.stream->Synchronize();
}

}  // namespace syncline::worker
