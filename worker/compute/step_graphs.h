#ifndef SYNCLINE_WORKER_COMPUTE_STEP_GRAPHS_H_
#define SYNCLINE_WORKER_COMPUTE_STEP_GRAPHS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device/device.h"
#include "worker/compute/step_plan.h"

namespace syncline::worker {

// A piece of a step's work that is kept to be run again: a graph of the device,
// or an operator that none can hold.
struct StepSegment {
  std::unique_ptr<DeviceGraph> graph;  // null: `apart`
  StepPlan::Apart apart = {};
  bool has_loss = false;            // behind it the loss is known
  std::vector<int> gradients = {};  // final behind it, in order
};

// Cuts a step's work, which is queued but not done meanwhile, into segments. A
// segment ends where somebody outside the graph has to know that gradients are
// final, but not for less than `segment_bytes` of them; and around what runs
// apart. Thread-compatible.
class SegmentRecorder {
 public:
  // `stream` outlives this.
  SegmentRecorder(Stream* stream, int64_t segment_bytes)
      : stream_(*stream), segment_bytes_(segment_bytes) {}
  // Ends what is being kept.
  ~SegmentRecorder();

  // Work that is queued from now on is kept. Errors, here and below: the
  // stream's (Stream::BeginGraph, EndGraph); nothing is kept any more, and
  // nothing is to be queued.
  absl::Status Begin();
  // The loss, and its copy for the host, have been queued.
  void AddLoss() { open_.has_loss = true; }
  // So has the last of what writes this gradient.
  absl::Status AddGradient(int parameter, int64_t bytes);
  absl::Status AddApart(const StepPlan::Apart& apart);
  absl::StatusOr<std::vector<StepSegment>> End();

 private:
  absl::Status Cut();

  Stream& stream_;
  const int64_t segment_bytes_;
  bool is_keeping_ = false;
  StepSegment open_;
  int64_t open_bytes_ = 0;
  std::vector<StepSegment> segments_;
};

// Steps of one plan that have been kept, each with all that its work depends on
// beside the plan: the plan's binding, and a number of the caller's for its own
// choices. A step is steady once both are as they were before.
// Thread-compatible.
class KeptSteps {
 public:
  // Most kinds that a plan has at a time: parts of a batch differ, and so may
  // addresses.
  static constexpr size_t kStepsMax = 64;

  struct Step {
    std::vector<const void*> binding;
    int choices = 0;
    std::vector<StepSegment> segments = {};
    bool is_refused = false;  // by the device
  };
  // Null: no such step was asked for lately. From now on one was.
  Step* Find(absl::Span<const void* const> binding, int choices);

 private:
  std::vector<std::unique_ptr<Step>> steps_;  // latest use first
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_STEP_GRAPHS_H_
