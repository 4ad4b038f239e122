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

std::vector<int64_t> CountsOf(absl::Span<const DeviceUpdater::Block> blocks) {
  std::vector<int64_t> counts;
  for (const DeviceUpdater::Block& block : blocks) {
    counts.push_back(static_cast<int64_t>(block.count));
  }
  return counts;
}

// Of so many arrays of `floats`.
uint64_t BytesOf(size_t floats, int arrays,
                 absl::Span<const DeviceUpdater::Block> blocks) {
  uint64_t chunks = 0;
  for (const DeviceUpdater::Block& block : blocks) {
    chunks += ChunkCount(block.count);
  }
  return floats * sizeof(float) * static_cast<uint64_t>(arrays) +
         chunks * sizeof(TensorChunk);
}

}  // namespace

DeviceUpdater::DeviceUpdater(const OptimizerParams& optimizer,
                             DeviceTensors tensors,
                             absl::Span<const int64_t> counts,
                             std::vector<Block> blocks)
    : optimizer_(optimizer),
      tensors_(std::move(tensors)),
      device_(tensors_.stream->device()),
      offsets_(TensorOffsets(counts)),
      blocks_(std::move(blocks)),
      floats_(offsets_.back()) {
  for (const Block& block : blocks_) {
    places_.push_back(offsets_[block.tensor] + block.offset);
  }
  CutChunks();
}

DeviceUpdater::DeviceUpdater(const OptimizerParams& optimizer, Device* device,
                             std::vector<Block> blocks)
    : optimizer_(optimizer),
      device_(*device),
      blocks_(std::move(blocks)),
      places_(TensorOffsets(CountsOf(blocks_))),
      floats_(places_.back()),
      is_apart_(true) {
  CutChunks();
}

DeviceUpdater::~DeviceUpdater() { TakeValues(false); }

void DeviceUpdater::CutChunks() {
  SYNCLINE_CHECK(HasTensorUpdates(device_, optimizer_.kind));
  marks_ = std::make_shared<const Stream::Marks>(
      Stream::Marks{"the values of a step", "the sums of gradients",
                    "the update", "values and the optimizer's state"});
  for (size_t b = 0; b < blocks_.size(); ++b) {
    first_chunk_.push_back(chunks_.size());
    AppendChunks(places_[b], blocks_[b].count, blocks_[b].momentum, &chunks_);
  }
  first_chunk_.push_back(chunks_.size());
}

uint64_t DeviceUpdater::DeviceBytes(const OptimizerParams& optimizer,
                                    absl::Span<const int64_t> counts,
                                    absl::Span<const Block> blocks) {
  return BytesOf(TensorOffsets(counts).back(), 1 + OptimizerSlots(optimizer),
                 blocks);
}

uint64_t DeviceUpdater::DeviceBytes(const OptimizerParams& optimizer,
                                    absl::Span<const Block> blocks) {
  if (blocks.empty()) return 0;
  return BytesOf(TensorOffsets(CountsOf(blocks)).back(),
                 2 + OptimizerSlots(optimizer), blocks);
}

absl::Status DeviceUpdater::Allocate() {
  if (blocks_.empty()) return absl::OkStatus();
  const int arrays_there = arrays() + (is_apart_ ? 1 : 0);
  SYNCLINE_RETURN_IF_ERROR(CheckMemoryFor(
      absl::StrCat("values and the optimizer's state on ", device_.name()),
      BytesOf(floats_, arrays_there, blocks_),
      [this] { return device_.FreeBytes(); }));
  if (is_apart_) {
    SYNCLINE_ASSIGN_OR_RETURN(own_stream_, device_.MakeStream());
  }
  const size_t bytes =
      floats_ * sizeof(float) * static_cast<size_t>(arrays_there);
  SYNCLINE_ASSIGN_OR_RETURN(
      device_chunks_, Upload(device_, absl::Span<const TensorChunk>(chunks_)));
  SYNCLINE_ASSIGN_OR_RETURN(state_, device_.Allocate(bytes));
  SYNCLINE_ASSIGN_OR_RETURN(copied_, device_.MakeEvent());
  stream().Clear(state_.data(), bytes);
  return stream().Synchronize();
}

void DeviceUpdater::Mark(Work work) {
  stream().UseMarks(marks_);
  stream().Mark(static_cast<uint32_t>(work));
}

absl::Status DeviceUpdater::LoadState(
    absl::FunctionRef<absl::Span<const float>(uint32_t block, int array)>
        array_of) {
  Mark(Work::kShow);
  for (uint32_t b = 0; b < blocks_.size(); ++b) {
    for (int array = 0; array < arrays(); ++array) {
      stream().CopyToDevice(Array(array) + places_[b],
                            array_of(b, array).data(),
                            blocks_[b].count * sizeof(float));
    }
  }
  return stream().Synchronize();
}

void DeviceUpdater::ShowValues() {
  Mark(Work::kShow);
  stream().Copy(tensors_.values, Array(0), floats_ * sizeof(float));
}

void DeviceUpdater::CopySum(uint32_t block, absl::Span<const float> from) {
  Mark(Work::kCopy);
  stream().CopyToDevice(gradients() + places_[block], from.data(),
                        from.size() * sizeof(float));
}

absl::Status DeviceUpdater::AwaitCopies() { return copied_->Wait(); }

void DeviceUpdater::Update(absl::Span<const BlockStep> steps) {
  copied_->Record(stream());
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
  const TensorUpdateKernels& kernels = *device_.kernels().tensor_update;
  kernels.update(stream(), optimizer_, step, scale_of_mean,
                 static_cast<int64_t>(first_chunk_[last] - begin),
                 device_chunks_.as<TensorChunk>() + begin, gradients(),
                 Array(0), slots);
  ++launches_;
}

absl::Status DeviceUpdater::ReadState(
    absl::FunctionRef<absl::Span<float>(uint32_t block, int array)> to) {
  if (blocks_.empty()) return absl::OkStatus();
  Mark(Work::kRead);
  for (uint32_t b = 0; b < blocks_.size(); ++b) {
    for (int array = 0; array < arrays(); ++array) {
      const absl::Span<float> floats = to(b, array);
      if (floats.empty()) continue;
      stream().CopyToHost(floats.data(), Array(array) + places_[b],
                          floats.size() * sizeof(float));
    }
  }
  return stream().Synchronize();
}

absl::Status DeviceUpdater::ReadValuesOf(
    absl::Span<const uint32_t> blocks,
    absl::FunctionRef<absl::Span<float>(uint32_t block)> to) {
  Mark(Work::kRead);
  for (const uint32_t block : blocks) {
    const absl::Span<float> floats = to(block);
    stream().CopyToHost(floats.data(), Array(0) + places_[block],
                        floats.size() * sizeof(float));
  }
  return stream().Synchronize();
}

absl::Status DeviceUpdater::ReadValues(absl::Span<const absl::Span<float>> to) {
  Mark(Work::kRead);
  for (size_t tensor = 0; tensor < to.size(); ++tensor) {
    stream().CopyToHost(to[tensor].data(), Array(0) + offsets_[tensor],
                        to[tensor].size() * sizeof(float));
  }
  return stream().Synchronize();
}

}  // namespace syncline::worker
