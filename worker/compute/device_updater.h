#ifndef SYNCLINE_WORKER_COMPUTE_DEVICE_UPDATER_H_
#define SYNCLINE_WORKER_COMPUTE_DEVICE_UPDATER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/device/device.h"
#include "kernels/device/tensor_update_kernels.h"
#include "kernels/optimizer/optimizer.h"

namespace syncline::worker {

// A job's tensors where a device computes their gradients, for who updates them
// there.
struct DeviceTensors {
  // That has the gradients; outlives the user.
  Stream* stream = nullptr;
  // Values that steps compute with, and gradients: one array each, where tensor
  // follows tensor, each from a multiple of kCacheLineBytes on.
  float* values = nullptr;
  float* gradients = nullptr;
  // By tensor: memory of the host for the sum of its gradients over all ranks.
  // It may be that of the rank's own gradient, which nobody needs any more when
  // the sum is there.
  std::vector<absl::Span<float>> sums;
  // While it is true, steps take the values as they are on the device, and not
  // the host's. Null: nobody asks.
  std::function<void(bool takes)> take_values;
};

// Values and optimizer state of blocks in memory of a device, and the updates
// of them, with the bits of DenseUpdater's. Its owner sums gradients, and says
// when.
//
//   LoadState        once: the state of each block, from the host
//   CopySum          for each block of which a sum is there
//   Update           one launch for all blocks whose step is the same
//   ReadState, ReadValues   for who reads them on the host
//
// Of a rank that updates all blocks it works in the stream that computes their
// gradients, whose memory sums take the place of, and has
//
//   ShowValues       before each step: the values that it computes with
//
// The values are an array of their own: an evaluation may write those that
// steps compute with. Of a rank that updates some blocks it has a stream and
// memory of its own, so that it works while gradients are computed.
//
// Thread-compatible; all but LoadState, AwaitCopies and the reads return as
// soon as work is queued, and its errors come with these.
class DeviceUpdater {
 public:
  // A part of a tensor. Blocks do not overlap.
  struct Block {
    uint32_t tensor = 0;
    size_t offset = 0;
    size_t count = 0;
    std::optional<float> momentum = {};  // of a running mean
  };
  // The update of one block.
  struct BlockStep {
    uint32_t block = 0;
    // None: of a running mean.
    std::optional<OptimizerStep> step;
    // Turns the sum into the mean; not clipped.
    float scale_of_mean = 1;
  };

  // All blocks of tensors of `counts` elements. REQUIRES: HasTensorUpdates of
  // the device (tensor_updates.h).
  DeviceUpdater(const OptimizerParams& optimizer, DeviceTensors tensors,
                absl::Span<const int64_t> counts, std::vector<Block> blocks);
  // Some blocks, for which Allocate makes a stream of `device`, which outlives
  // this. REQUIRES: as above.
  DeviceUpdater(const OptimizerParams& optimizer, Device* device,
                std::vector<Block> blocks);
  ~DeviceUpdater();

  // Bytes that Allocate takes of the device, for all blocks or for some.
  static uint64_t DeviceBytes(const OptimizerParams& optimizer,
                              absl::Span<const int64_t> counts,
                              absl::Span<const Block> blocks);
  static uint64_t DeviceBytes(const OptimizerParams& optimizer,
                              absl::Span<const Block> blocks);
  // Errors: ResourceExhausted: the device has not as much; the device's.
  absl::Status Allocate();

  // Makes copies from and to the host's state as fast as they can be, where the
  // device can; it outlives this.
  void PinHost(absl::Span<float> state) {
    pinned_ = device_.Pin(state.data(), state.size() * sizeof(float));
  }

  // From array_of(block, array) of each block: array 0 has its values, the next
  // ones have the slots. Errors: the device's.
  absl::Status LoadState(
      absl::FunctionRef<absl::Span<const float>(uint32_t block, int array)>
          array_of);
  // REQUIRES: it has all blocks, as for TakeValues, sum and ReadValues.
  void ShowValues();
  // While it is true, steps compute with the values of the latest ShowValues.
  void TakeValues(bool takes) {
    if (tensors_.take_values != nullptr) tensors_.take_values(takes);
  }

  // Where the sum of a block's gradients goes before CopySum.
  absl::Span<float> sum(uint32_t block) const {
    const Block& of = blocks_[block];
    return tensors_.sums[of.tensor].subspan(of.offset, of.count);
  }
  // `from` stays as it is until AwaitCopies has returned.
  void CopySum(uint32_t block, absl::Span<const float> from);
  // Blocks until what CopySum has read until the latest Update is free. Errors:
  // the device's.
  absl::Status AwaitCopies();
  // Ascending blocks, each with its sum on the device. REQUIRES: frozen_t is 0.
  void Update(absl::Span<const BlockStep> steps);
  // Of all Updates.
  int64_t launches() const { return launches_; }

  // Writes the array of each block for which `to` is not empty. Errors: the
  // device's.
  absl::Status ReadState(
      absl::FunctionRef<absl::Span<float>(uint32_t block, int array)> to);
  // The values of these alone. Errors: the device's.
  absl::Status ReadValuesOf(
      absl::Span<const uint32_t> blocks,
      absl::FunctionRef<absl::Span<float>(uint32_t block)> to);
  // By tensor. Errors: the device's.
  absl::Status ReadValues(absl::Span<const absl::Span<float>> to);

  uint32_t block_count() const { return static_cast<uint32_t>(blocks_.size()); }

 private:
  // For messages of errors, in place of an operator.
  enum class Work { kShow, kCopy, kUpdate, kRead };
  void Mark(Work work);
  void CutChunks();
  Stream& stream() const { return is_apart_ ? *own_stream_ : *tensors_.stream; }
  float* Array(int array) const {
    return state_.as<float>() + static_cast<size_t>(array) * floats_;
  }
  float* gradients() const {
    return is_apart_ ? Array(arrays()) : tensors_.gradients;
  }
  int arrays() const { return 1 + OptimizerSlots(optimizer_); }
  // Of blocks [first, last).
  void Launch(uint32_t first, uint32_t last, const OptimizerStep& step,
              float scale_of_mean);

  const OptimizerParams optimizer_;
  const DeviceTensors tensors_;
  Device& device_;
  const std::vector<size_t> offsets_;  // of tensors, in floats; or none
  const std::vector<Block> blocks_;
  std::vector<size_t> places_;   // of blocks in each array, in floats
  const size_t floats_;          // of an array
  const bool is_apart_ = false;  // it has a stream and gradients of its own
  std::unique_ptr<Stream> own_stream_;  // if it is apart
  std::vector<TensorChunk> chunks_;
  std::vector<size_t> first_chunk_;  // by block, and the end
  std::shared_ptr<const Stream::Marks> marks_;
  DeviceMemory device_chunks_;
  // Values, then each slot; then, apart, gradients. Laid out as
  // tensors_.values, or block by block.
  DeviceMemory state_;
  std::unique_ptr<Event> copied_;
  PinnedRange pinned_;
  int64_t launches_ = 0;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_DEVICE_UPDATER_H_
