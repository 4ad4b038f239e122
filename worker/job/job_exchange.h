#ifndef SYNCLINE_WORKER_JOB_JOB_EXCHANGE_H_
#define SYNCLINE_WORKER_JOB_JOB_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/exchange/dense_tensors.h"
#include "worker/exchange/parameter_exchange.h"
#include "worker/exchange/step_folds.h"
#include "worker/job/prepared_job.h"
#include "worker/job/worker_metrics.h"

namespace syncline::worker {

// How the ranks of a job exchange what they train: which implementation a job
// has, what it is made of, and the cuts at the ends of epochs.

// All that a rank shares with the others while it trains or evaluates.
struct JobExchange {
  std::unique_ptr<ParameterExchange> parameters;
  // Null: each batch has its own statistics, or this rank does not train.
  std::unique_ptr<StepFolds> folds;

  // Ends all calls, of now and later. Thread-safe.
  void Cancel(const absl::Status& reason) const;
};

// The properties of a job's process that are not the job's.
struct JobProcess {
  uint64_t incarnation = 0;
  bool shared_memory = true;         // with a ps on this host
  WorkerMetrics* metrics = nullptr;  // outlives the exchange
  // A ps is out of reach (FanoutCall), from a thread of gRPC; may be null.
  std::function<void(const Member& peer, absl::Duration out_of_reach,
                     const absl::Status& error)>
      on_unreachable = nullptr;
};

// The one place that knows which implementation a job has: today the ps of its
// assignment. REQUIRES: `job` is complete. It need not outlive the exchange.
JobExchange MakeJobExchange(const PreparedJob& job, const JobProcess& process);

// The executor's parameters and gradients. REQUIRES: `job` is complete.
DenseTensors DenseTensorsOf(const PreparedJob& job);

// The cut at `clock`, an epoch's end: the same for every rank.
uint64_t CutIdOf(const PreparedJob& job, int64_t clock);

// Announces it. It is held for as long as rows are read under it, or as an
// evaluator that is behind needs to get to it. Where workers are past it, an
// evaluator reads a later state. Errors: ParameterExchange's;
// FailedPrecondition: a rank that trains would have to wait for its own later
// steps.
absl::Status AnnounceCut(const PreparedJob& job, int64_t clock,
                         ParameterExchange* exchange);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_JOB_JOB_EXCHANGE_H_
