#ifndef SYNCLINE_WORKER_COMPUTE_LOCAL_UPDATER_H_
#define SYNCLINE_WORKER_COMPUTE_LOCAL_UPDATER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/system/memory_claim.h"
#include "common/update/step_rule.h"
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
// from round to round, and begins anew with the object. On this machine's
// processors, wherever the gradients were computed. Thread-compatible.
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
  // REQUIRES: neither kLamb nor kFtrl nor kRowWiseAdagrad.
  LocalUpdater(const OptimizerParams& optimizer, const StepRule& rule,
               std::vector<Tensor> tensors);

  // Bytes that it takes, of tensors with so many elements.
  struct Memory {
    uint64_t change_bytes = 0;  // at first the values of Begin
    uint64_t slot_bytes = 0;    // of the optimizer
  };
  static Memory MemoryOf(const OptimizerParams& optimizer,
                         absl::Span<const int64_t> counts);
  // Takes them from the system. Errors: ResourceExhausted; those of `go_on`.
  absl::Status MakeResident(const GoOnCheck& go_on);

  // For a schedule that ends with the job. Before the first Step.
  void SetTotalClocks(int64_t clocks);

  void Begin();
  // At the rate of round `clock`; `samples` > 0 are the batch's. Errors, which
  // leave values in part updated: FailedPrecondition: a gradient is not finite,
  // with tensor and element.
  absl::Status Step(int64_t clock, uint64_t samples);
  void End(uint64_t samples);

  // From End to the next Begin; at a fixed address.
  absl::Span<const float> change(size_t tensor) const {
    return {changes_.data() + offsets_[tensor], tensors_[tensor].value.size()};
  }
  size_t tensor_count() const { return tensors_.size(); }

 private:
  // In floats, so that each tensor begins on a cache line; the last one is the
  // end of all.
  static std::vector<size_t> OffsetsOf(absl::Span<const int64_t> counts);
  float* SlotOf(size_t tensor, int slot) {
    return slots_.data() + slot * changes_.size() + offsets_[tensor];
  }
  // Of the mean gradient over all tensors but running means; negative where
  // nobody needs it.
  double SquaredNorm(uint64_t samples) const;

  const OptimizerParams optimizer_;
  StepRule rule_;
  const std::vector<Tensor> tensors_;
  const std::vector<size_t> offsets_;
  AlignedFloats changes_;
  AlignedFloats slots_;  // slot after slot, each laid out as changes_
  int64_t updates_ = 0;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_LOCAL_UPDATER_H_
