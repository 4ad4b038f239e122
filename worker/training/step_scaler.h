#ifndef SYNCLINE_WORKER_TRAINING_STEP_SCALER_H_
#define SYNCLINE_WORKER_TRAINING_STEP_SCALER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/compute/loss_scale.h"
#include "worker/exchange/parameter_exchange.h"
#include "worker/job/prepared_job.h"
#include "worker/job/progress_meter.h"
#include "worker/job/worker_metrics.h"

namespace syncline::worker {

// The loss scale of one rank around one training step after the other: what
// each step is computed with, and what follows from the steps that overflowed.
// Does nothing where the job has no loss scale. One thread.
//
//   BeginStep(c) -> forward, backward -> OnGradient(c)
//                -> values for c + 1 -> BeginStep(c + 1)
//
// In SYNC the answers of the shards say which clocks were skipped, the same to
// all ranks: so all have the same scale at the same clock. In the other modes a
// rank goes by its own gradients.
class StepScaler {
 public:
  // The objects outlive this.
  StepScaler(const PreparedJob& job, const ParameterExchange* parameters,
             WorkerMetrics* metrics, ProgressMeter* meter);

  // Takes what has become of the step before, and gives the executor the scale
  // of step `clock`. REQUIRES: the values that step `clock` computes with have
  // been read. Errors: FailedPrecondition: the step before overflowed at the
  // smallest scale, and the job is to fail then; names clock and element.
  absl::Status BeginStep(int64_t clock);
  // The first part of BeginStep alone: takes what has become of the step
  // before. For a state that is saved between two steps. Errors: BeginStep's.
  absl::Status Settle();
  // EndBackward of step `clock` was called; the step has, or had, `samples`.
  // `overflow`: Executor::StepResult's.
  void OnGradient(int64_t clock, uint64_t samples, const std::string& overflow);

  // The state that another process goes on with, after Settle; none: no step
  // changes the scale, or ranks differ.
  std::optional<LossScale::State> StateOfAllRanks(int64_t clock) const;
  // Of the next step; 0: the job has none.
  double scale() const { return scales_ ? scale_.scale() : 0; }
  // BeginStep has failed because of another rank's gradient.
  bool spoilt_by_others() const { return spoilt_by_others_; }

 private:
  struct Done {
    int64_t clock = 0;
    uint64_t samples = 0;
    std::string overflow;
    bool abandoned = false;
  };
  // Goes on with the scale of the checkpoint that the attempt starts from.
  void Restore();
  // None: the step says nothing about the scale.
  std::optional<bool> HasOverflowed(const Done& step) const;
  absl::Status OnExhausted(const Done& step);
  void LogOverflow(const Done& step, LossScale::Event event);

  const PreparedJob& job_;
  const ParameterExchange& parameters_;
  WorkerMetrics& metrics_;
  ProgressMeter& meter_;
  const bool scales_;
  const bool dynamic_;
  LossScale scale_;
  std::optional<Done> done_;  // the step before, until the next begins
  bool spoilt_by_others_ = false;
  absl::Time next_log_ = absl::InfinitePast();
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_TRAINING_STEP_SCALER_H_
