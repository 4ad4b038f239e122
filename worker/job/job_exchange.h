#ifndef SYNCLINE_WORKER_JOB_JOB_EXCHANGE_H_
#define SYNCLINE_WORKER_JOB_JOB_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/system/memory_claim.h"
#include "worker/collectives/peer_transport.h"
#include "worker/data/epochs.h"
#include "worker/exchange/dense_tensors.h"
#include "worker/exchange/parameter_exchange.h"
#include "worker/exchange/step_folds.h"
#include "worker/job/peer_joining.h"
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
  // For jobs whose workers reduce among themselves; null: this process fails
  // them.
  JoinPeers join_peers = nullptr;
  // An error ends the joining, and the taking of memory. May be null.
  GoOnCheck go_on = nullptr;
  // A ps is out of reach (FanoutCall), from a thread of gRPC; may be null.
  std::function<void(const Member& peer, absl::Duration out_of_reach,
                     const absl::Status& error)>
      on_unreachable = nullptr;
};

// The one place that knows which implementation a job has: the ps of its
// assignment, the other ranks, one after the other where the strategy changes,
// or both. REQUIRES: `job` is complete, and outlives the exchange. Errors, of a
// job whose workers reduce among themselves when it begins: those of join_peers
// and of PeerExchange::Create.
absl::StatusOr<JobExchange> MakeJobExchange(const PreparedJob& job,
                                            const JobProcess& process);

// The ranks of a job without ps, and behind them its evaluator; the members of
// this rank's group where that is one worker to the ps.
PeerGroup PeerGroupOf(const PreparedJob& job);

// The executor's parameters and gradients; in LOCAL, what a round has changed
// in place of these. REQUIRES: `job` is complete.
DenseTensors DenseTensorsOf(const PreparedJob& job);

// The cut at `clock`, an epoch's end: the same for every rank.
uint64_t CutIdOf(const PreparedJob& job, int64_t clock);

// A cut as the rank sees it that reads the state there.
struct EpochCut {
  uint64_t id = 0;
  // A rank that trains has made the steps before this clock, and reads the cut
  // before the next one. For an evaluator: every rank has made them.
  int64_t clock = 0;
};

// Announces the cut at the end of the epoch that contains step `clock`. It is
// held for as long as rows are read under it, or as an evaluator that is behind
// needs to get to it. Where workers are past the epoch's end, the cut is at the
// later clock that is returned. None: the shards did not agree, which a warning
// says, and the epoch is not evaluated.
//
// Errors: ParameterExchange's, where the job cannot do without the cut: it is
// the last one, or the evaluator waits for the one that the chief announces.
// FailedPrecondition: that one was raised, and the evaluator cannot know it;
// the evaluator's last one was, and the chief cannot.
absl::StatusOr<std::optional<EpochCut>> AnnounceCut(
    const PreparedJob& job, const Epochs& epochs, int64_t clock,
    ParameterExchange* exchange);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_JOB_JOB_EXCHANGE_H_
