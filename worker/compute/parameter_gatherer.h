#ifndef SYNCLINE_WORKER_COMPUTE_PARAMETER_GATHERER_H_
#define SYNCLINE_WORKER_COMPUTE_PARAMETER_GATHERER_H_

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace syncline::worker {

// Brings the values of parameters to a step that does not hold them
// (Executor::Options.gather_unit_bytes): unit by unit, each shortly before the
// first operator that reads it runs. The units of a step have numbers
// (Executor::gather_units) and come in that order:
//
//   Begin(0) Await(0) Begin(1) .. operators of unit 0 .. Release(0)
//   Await(1) Begin(2) .. operators of unit 1 .. Release(1) ...
//
// The first unit of a batch's next part begins when the part before has ended.
// All calls come from the thread of the step. A step that fails, that has fewer
// parts than others, or whose loss is not finite, ends early: its later units
// are not begun, and one that was begun may not be awaited.
class ParameterGatherer {
 public:
  virtual ~ParameterGatherer() = default;

  // Starts to write values: to[i] is where those of the unit's i-th parameter
  // go, 64-byte aligned. The memory belongs to the gatherer until Await of the
  // unit has returned, or, where no Await comes, until the step is closed by
  // whatever opened it. Does not block.
  virtual void Begin(int unit, absl::Span<float* const> to) = 0;
  // Returns when the values are there. Errors end the step.
  virtual absl::Status Await(int unit) = 0;
  // No operator reads the unit's memory any more; another unit's values come
  // there.
  virtual void Release(int unit) = 0;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_PARAMETER_GATHERER_H_
