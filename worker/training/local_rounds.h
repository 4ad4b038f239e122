#ifndef SYNCLINE_WORKER_TRAINING_LOCAL_ROUNDS_H_
#define SYNCLINE_WORKER_TRAINING_LOCAL_ROUNDS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/data/batch.h"
#include "worker/data/rounds.h"
#include "worker/exchange/parameter_exchange.h"
#include "worker/job/prepared_job.h"

namespace syncline::worker {

// The computing part of a clock in LOCAL, in place of one forward and backward:
//
//   the values of the ps -> batch, forward, backward, a step of the worker's
//                           own optimizer; so for each batch of the round
//                        -> what the round has changed, in job.local
//
// The exchange is told of the round's step when the changes are there. So that
// ranks that are done wait for this one, whatever the length of a round, it
// reports its local steps while it makes them. Thread-compatible.
class LocalRounds {
 public:
  // `job`, which has `local`, and `parameters` outlive this. `clocks_total`:
  // the job's, for schedules that end with it. `on_activity` hears of the local
  // steps of a round that takes long, in words; empty: the round is over. May
  // be null.
  LocalRounds(const PreparedJob& job, const Rounds& rounds,
              int64_t clocks_total, ParameterExchange* parameters,
              std::function<void(const std::string& what)> on_activity);

  struct Round {
    uint64_t samples = 0;
    double loss_sum = 0;  // over them, each by the values of its local step
    absl::Duration updates = absl::ZeroDuration();  // LocalUpdater's time
  };
  using NextBatch = absl::FunctionRef<absl::StatusOr<const Batch*>()>;
  // Makes the local steps of round `clock`, from the values that the executor
  // has, which are the ps' for this clock. A batch without samples is no step.
  // Errors: those of `next_batch`, Executor::TrainStep, LocalUpdater::Step and
  // ReportActivity, with the local step.
  absl::StatusOr<Round> Run(int64_t clock, NextBatch next_batch);

 private:
  absl::Status Report(int64_t clock, int64_t done, int64_t total);

  const PreparedJob& job_;
  const Rounds rounds_;
  ParameterExchange& parameters_;
  const std::function<void(const std::string& what)> on_activity_;
  absl::Time told_at_ = absl::InfinitePast();
  bool has_told_ = false;  // of the present round
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_TRAINING_LOCAL_ROUNDS_H_
