#ifndef SYNCLINE_WORKER_EXCHANGE_STEP_FOLDS_H_
#define SYNCLINE_WORKER_EXCHANGE_STEP_FOLDS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/compute/step_recorder.h"
#include "worker/ops/statistics_exchange.h"

namespace syncline::worker {

// The folds of one rank's steps: operators call Fold in the middle of a step,
// the training loop makes the calls around it.
//
//   BeginStep(c) -> Fold, Fold, ... -> Leave, where this rank has no part in
//                                      folds that others still make
//
// One thread; Cancel from any. Errors are as ParameterExchange's: the first is
// kept, names the member that failed or is missing, and ends the job.
class StepFolds : public StatisticsExchange {
 public:
  // `recorder`, which may be null, is told of waits until the next step.
  virtual void BeginStep(int64_t clock, StepRecorder* recorder) = 0;
  // Takes part in no more folds of this step: the others do not wait for it.
  // Blocks for a round trip.
  virtual absl::Status Leave() = 0;
  // In Fold and Leave, since BeginStep.
  virtual absl::Duration waited() const = 0;
  // Since BeginStep sums were not finite though what this rank had brought was:
  // another rank is to blame.
  virtual bool spoilt_by_others() const = 0;
  // The error that is kept.
  virtual const absl::Status& status() const = 0;

  // Ends what is under way, and every later call. Thread-safe.
  virtual void Cancel(const absl::Status& reason) = 0;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EXCHANGE_STEP_FOLDS_H_
