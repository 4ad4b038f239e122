#ifndef SYNCLINE_WORKER_COMPUTE_LOCAL_UPDATER_H_
#define SYNCLINE_WORKER_COMPUTE_LOCAL_UPDATER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/system/memory_claim.h"
#include "common/update/step_rule.h"
#include "kernels/device/device.h"
#include "kernels/device/tensor_update_kernels.h"
#include "kernels/optimizer/optimizer.h"

namespace syncline::worker {

// The steps that a worker makes by itself within a round of LOCAL (ADR 081),
// with the job's optimizer, on the values that it computes with; and what they
// have changed, which it pushes as one gradient:
//
//   Begin                 keeps the values that the round begins with
//   Step, for each batch  updates the values by the batch's gradient
//   End                   change = (value at Begin - value) * samples
//
// `samples` are those of the worker's batches of the round. Who owns a tensor
// adds the changes of all workers up and divides by the samples of all: its
// gradient is the mean of what the workers have changed, each weighted by its
// samples. Of a running mean the change is value * samples instead, so that the
// mean of all workers is the owner's next value (with a momentum of 0).
//
// The arithmetic of a step is DenseUpdater's. The optimizer's state stays here
// from round to round, and begins anew with the object. Steps are made on this
// machine's processors, or, where the gradients are in memory of a device that
// has kernels for the optimizer (RunsOn), there: the values come once for a
// round, and what it has changed goes back. These have the same bits, but for a
// norm to clip by, whose sum has another order. Thread-compatible.
class LocalUpdater {
 public:
  // `value` and `gradient`, of the summed loss, belong to the caller and are
  // not touched between calls.
  struct Tensor {
    std::string name;
    absl::Span<float> value;
    absl::Span<const float> gradient;
    std::optional<float> momentum = {};  // of a running mean
  };
  // The tensors on a device: values and gradients are one array each, where
  // tensor follows tensor, each from a multiple of kCacheLineBytes on. Steps
  // are queued in the stream, which has the gradients; all outlive the updater.
  // Null: on this machine's processors.
  struct OnDevice {
    Stream* stream = nullptr;
    float* values = nullptr;
    const float* gradients = nullptr;
  };
  // The device makes these steps.
  static bool RunsOn(Device& device, OptimizerKind kind);

  // REQUIRES: neither kLamb nor kFtrl nor kRowWiseAdagrad; on a device: RunsOn.
  LocalUpdater(const OptimizerParams& optimizer, const StepRule& rule,
               std::vector<Tensor> tensors);
  LocalUpdater(const OptimizerParams& optimizer, const StepRule& rule,
               std::vector<Tensor> tensors, const OnDevice& on_device);

  // Bytes that it takes, of tensors with so many elements.
  struct Memory {
    uint64_t change_bytes = 0;  // at first the values of Begin
    uint64_t slot_bytes = 0;    // of the optimizer
    uint64_t device_bytes = 0;  // in memory of the device
  };
  static Memory MemoryOf(const OptimizerParams& optimizer,
                         absl::Span<const int64_t> counts, bool on_device);
  // Takes them from the system and the device. Errors: ResourceExhausted; those
  // of `go_on`; the device's.
  absl::Status MakeResident(const GoOnCheck& go_on);

  // For a schedule that ends with the job. Before the first Step.
  void SetTotalClocks(int64_t clocks);

  void Begin();
  // At the rate of round `clock`; `samples` > 0 are the batch's. Errors, which
  // leave values in part updated: FailedPrecondition: a gradient is not finite,
  // with tensor and element; the device's.
  absl::Status Step(int64_t clock, uint64_t samples);
  // Errors: the device's.
  absl::Status End(uint64_t samples);

  // From End to the next Begin; at a fixed address.
  absl::Span<const float> change(size_t tensor) const {
    return {changes_.data() + offsets_[tensor], tensors_[tensor].value.size()};
  }
  size_t tensor_count() const { return tensors_.size(); }

 private:
  float* SlotOf(size_t tensor, int slot) {
    return slots_.data() + slot * changes_.size() + offsets_[tensor];
  }
  // Of the mean gradient over all tensors but running means; negative where
  // nobody needs it.
  double SquaredNorm(uint64_t samples) const;
  // Errors: as Step's.
  absl::Status CheckFinite() const;
  absl::Status NotFinite(size_t tensor, size_t element, float value) const;
  void StepHere(const OptimizerStep& step, float scale);
  void EndHere(float weight);

  // On a device:
  bool is_on_device() const { return on_device_.stream != nullptr; }
  const TensorUpdateKernels& kernels() const;
  // For messages of errors: whose work follows, in place of an operator's.
  enum class Work { kBegin, kCheck, kUpdate, kEnd };
  void Mark(Work work);
  void CutChunks();
  absl::Status AllocateOnDevice();
  // Looks at the gradients, and says their SquaredNorm. Errors: as Step's.
  absl::StatusOr<double> CheckOnDevice(uint64_t samples);
  absl::Status NotFiniteOnDevice(const TensorChunk& chunk, int64_t element);

  const OptimizerParams optimizer_;
  StepRule rule_;
  const std::vector<Tensor> tensors_;
  const std::vector<size_t> offsets_;
  const OnDevice on_device_;
  AlignedFloats changes_;
  AlignedFloats slots_;  // slot after slot, each laid out as changes_
  int64_t updates_ = 0;

  // On a device, in place of slots_; laid out as there.
  std::shared_ptr<const Stream::Marks> marks_;
  std::vector<TensorChunk> chunks_;
  std::vector<ChunkCheck> found_;
  DeviceMemory device_chunks_;
  DeviceMemory device_found_;
  DeviceMemory device_changes_;
  DeviceMemory device_slots_;
  PinnedRange pinned_changes_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_LOCAL_UPDATER_H_
