#ifndef SYNCLINE_WORKER_COMPUTE_LATE_GRADIENT_H_
#define SYNCLINE_WORKER_COMPUTE_LATE_GRADIENT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/system/memory_claim.h"

namespace syncline::worker {

// The gradient of a clock that the others have ended without this worker
// (ConsistencySpec.Late, ADR 092). In place of computing another one the worker
// pushes it at the open clock, s clocks later, changed element by element:
//
//   SCALE       g / (1 + s)
//   COMPENSATE  g + lambda / n * g * g * (value at the open clock - value that
//               g was computed with)
//
// for a sum g over n samples. The latter is the diagonal approximation of Zheng
// et al. 2017 (DC-ASGD), for the mean of the samples. The push of
// a running mean is that of its batch, and is not changed.
//
//   BeginStep           keeps the values that the step computes with
//   Keep                the step was made without this worker
//   Take                the gradients are those to be pushed instead
//
// Rows of tables are the caller's altogether: their gradients, and with
// COMPENSATE both values, are where the step and a second read have put them.
//
// A gradient that comes too late again is dropped, and so is one whose memory
// an evaluation has used. On this machine's processors. Thread-compatible.
class LateGradient {
 public:
  // They belong to the caller, and are not touched between calls but for a
  // step.
  struct Tensor {
    absl::Span<const float> value;
    absl::Span<float> gradient;  // of the summed loss
    bool is_running_mean = false;
  };
  // Rows of one table that the step has read, [n, dim], by key.
  struct Rows {
    absl::Span<float> gradient;  // of the summed loss
    // COMPENSATE, else empty: what the gradient was computed with, and the rows
    // of the same keys at the open clock.
    absl::Span<const float> before = {};
    absl::Span<const float> value = {};
  };
  // `lambda`: COMPENSATE's; none: SCALE.
  LateGradient(std::optional<float> lambda, std::vector<Tensor> tensors);

  // Bytes that COMPENSATE takes, of tensors with so many elements; SCALE takes
  // none.
  static uint64_t BytesOf(absl::Span<const int64_t> counts);
  // Takes them from the system. Errors: ResourceExhausted; those of `go_on`.
  absl::Status MakeResident(const GoOnCheck& go_on);

  void BeginStep();
  // Step `clock`, of so many samples, was made without this worker's gradient.
  void Keep(int64_t clock, uint64_t samples, double loss_sum);
  // The memory of the gradients is used for something else: none is kept.
  void Forget() { kept_.reset(); }
  // A gradient is kept, and not taken.
  bool is_kept() const { return kept_.has_value(); }
  // COMPENSATE: Take looks at values.
  bool compensates() const { return lambda_.has_value(); }

  struct Late {
    int64_t clock = 0;  // of its values
    uint64_t samples = 0;
    double loss_sum = 0;
  };
  // Changes the gradients, those of `rows` too, into those that are pushed at
  // clock `open`, whose values have been read. `rows`: of each table that the
  // job has. REQUIRES: is_kept.
  Late Take(int64_t open, absl::Span<const Rows> rows = {});

 private:
  // Changes `gradient`, of a step of `late`, as SCALE or COMPENSATE says.
  void Change(const Late& late, int64_t open, absl::Span<float> gradient,
              const float* before, const float* value) const;

  const std::optional<float> lambda_;
  const std::vector<Tensor> tensors_;
  AlignedFloats values_;  // COMPENSATE: of the step, tensor after tensor
  std::optional<Late> kept_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_LATE_GRADIENT_H_
