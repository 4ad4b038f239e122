#ifndef SYNCLINE_WORKER_EVALUATION_CUT_EVALUATOR_H_
#define SYNCLINE_WORKER_EVALUATION_CUT_EVALUATOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/job.pb.h"
#include "worker/data/epochs.h"
#include "worker/embedding/checkpoint_rows.h"
#include "worker/evaluation/best_evaluation.h"
#include "worker/evaluation/evaluator.h"
#include "worker/evaluation/stop_rule.h"
#include "worker/exchange/parameter_exchange.h"
#include "worker/job/job_exchange.h"
#include "worker/job/prepared_job.h"
#include "worker/job/worker_metrics.h"

namespace syncline::worker {

// Takes the bytes of an evaluation's files that are stored so far. Calls may
// block. They may come from another thread than OnEvaluation's, but one after
// the other, and the last returns before OnEvaluation goes on: no state behind
// them has a lock.
using StoringProgress = std::function<void(uint64_t bytes)>;
// Sees an evaluation while the executor still has the parameters that it is of.
// A function that takes long tells `storing` how far it is, 0 first: else the
// members that wait for this rank give up.
using OnEvaluation = std::function<void(const Evaluation& evaluation,
                                        const StoringProgress& storing)>;

// Evaluates a job's state at its cuts, on the evaluator or else on the chief:
// reads the rows that each batch needs, reports its activity to the other
// ranks, and hands on each evaluation. Or evaluates its checkpoints, for which
// no rank waits. One thread, apart from StoringProgress.
class CutEvaluator {
 public:
  // The objects that are referred to must outlive this one. `on_activity` gets
  // a text for people when an evaluation begins, about once a second while it
  // runs, and "" when it ends; may be null. `parameters`: null where nobody
  // waits for an evaluation; rows of tables are `from_checkpoint`'s then, which
  // is null where there are none. REQUIRES: job.test is not null.
  CutEvaluator(const PreparedJob& job, const Epochs& epochs,
               ParameterExchange* parameters, WorkerMetrics* metrics,
               OnEvaluation on_evaluation,
               std::function<void(const std::string&)> on_activity,
               CheckpointRows* from_checkpoint = nullptr);

  // Adds the keys of all test data to the checkpoints' rows. Before the first
  // Run, of clock `clock`, of a job with tables without `parameters`; blocks.
  // Errors: CheckpointRows', Cancelled.
  absl::Status CollectKeys(int64_t clock, const std::atomic<bool>& stopped);

  // REQUIRES: the executor has the parameters as of `cut`, which
  // is held if the job has tables. Blocks; `stopped` is looked at before each
  // batch. Errors: ParameterExchange's, the executor's; Cancelled: stopped.
  // `checkpoint`: whose values they are; empty: read from the job.
  absl::Status Run(const EpochCut& cut, const std::atomic<bool>& stopped,
                   const std::string& checkpoint = "");

  const std::vector<Evaluation>& evaluations() const { return evaluations_; }
  // Why the job ends with the last evaluation, though it is not of the last
  // clock (StopSpec); empty: it does not.
  const std::string& stop_reason() const { return stop_reason_; }

 private:
  // Has the rows of a batch, as of the cut.
  absl::Status ReadRows(const EpochCut& cut, const Batch& batch);
  absl::Status ReadRowsOfJob(const EpochCut& cut,
                             absl::Span<RowBatch* const> rows);
  // The same about once a second, with how far it is.
  void SayProgress(const std::string& activity, int64_t done, int64_t total);
  void Say(const std::string& activity) const {
    if (on_activity_ != nullptr) on_activity_(activity);
  }
  absl::Status OnBatch(int64_t clock, int64_t done, int64_t total);
  // Of the best parameters so far.
  absl::Status OnStoring(int64_t clock, uint64_t bytes);
  absl::Status HandOver(const Evaluation& evaluation);
  // The period of activity reports to the ps, for the other ranks.
  absl::Duration ToldPeriod() const;
  void Log(const Evaluation& evaluation) const;

  const PreparedJob& job_;
  const Epochs epochs_;
  ParameterExchange* const parameters_;
  WorkerMetrics* const metrics_;
  const OnEvaluation on_evaluation_;
  const std::function<void(const std::string&)> on_activity_;
  CheckpointRows* const from_checkpoint_;
  Evaluator evaluator_;
  BestEvaluation best_;
  StopRule stop_;
  std::string stop_reason_;
  absl::Time told_at_;   // when the ps last got an activity
  absl::Time said_at_;   // when on_activity was last called
  int64_t samples_ = 0;  // of an evaluation
  std::vector<Evaluation> evaluations_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EVALUATION_CUT_EVALUATOR_H_
