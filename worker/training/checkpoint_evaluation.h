#ifndef SYNCLINE_WORKER_TRAINING_CHECKPOINT_EVALUATION_H_
#define SYNCLINE_WORKER_TRAINING_CHECKPOINT_EVALUATION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/system/memory_claim.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "worker/data/epochs.h"
#include "worker/evaluation/cut_evaluator.h"
#include "worker/export/table_export.h"
#include "worker/job/prepared_job.h"
#include "worker/job/worker_metrics.h"

namespace syncline::worker {

// The evaluator's work where a job's checkpoints are evaluated
// (EvaluateSpec.checkpoints), or those of another job (EvaluateSpec.only): it
// reads each one that it is told from its files, while training goes on, and
// hands its evaluation on. No rank waits for it, and it talks to none. One use,
// one thread; Request and Stop from any.
//
// Of tables it reads the rows that the test data has keys of, whose memory it
// takes; the keys are collected once, in a pass over that data.
//
// A checkpoint that cannot be read, because it is damaged, was deleted or
// cannot be seen here, is told with its reason, and the next one is awaited.
// While one is read it is marked, and the best one so far is
// (common/checkpoint/checkpoint_marks.h), so that retention keeps them.
class CheckpointEvaluation {
 public:
  struct Options {
    WorkerMetrics* metrics = nullptr;  // outlives this
    OnEvaluation on_evaluation;
    // CutEvaluator's.
    std::function<void(const std::string&)> on_activity;
    // A checkpoint could not be evaluated. From the evaluating thread.
    std::function<void(const std::string& path, const std::string& why)>
        on_failed;
    // The checkpoints of this job are marked, whose retention is to keep them.
    // Those of another one never are.
    bool marks = true;
  };
  // `job` is complete and outlives this.
  CheckpointEvaluation(const PreparedJob& job, const Epochs& epochs,
                       Options options);
  ~CheckpointEvaluation();

  // Until the checkpoint of the last clock is evaluated, or it is told that no
  // other one comes. Blocks. Errors: the executor's; Cancelled: by Stop.
  absl::Status Run() ABSL_LOCKS_EXCLUDED(mu_);
  // Evaluates this one checkpoint. Errors as Run; those of
  // ReadCheckpointValues.
  absl::Status Evaluate(const CheckpointInfo& checkpoint)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Takes the scheduler's command: the next checkpoint, in place of one that
  // still waits; without one: no other one comes. The last evaluation is told
  // again if its checkpoint is asked for again. Thread-safe.
  void Request(const EvaluateCheckpoint& command) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends Run with Cancelled; a batch that is being computed is finished first.
  // Thread-safe.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  // CutEvaluator's: the executor then has the values that the job ends with.
  const std::string& stop_reason() const { return evaluator_.stop_reason(); }
  const std::vector<Evaluation>& evaluations() const {
    return evaluator_.evaluations();
  }
  // Where the rows are read of a table of the checkpoint that was evaluated
  // last, which stays marked where the job ends with it. REQUIRES: there is
  // one. Outlived by this.
  TableReader ReaderOf(uint32_t table);

 private:
  // The next one to evaluate; none: no other one comes. Errors: Cancelled.
  absl::StatusOr<std::optional<CheckpointInfo>> Await()
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status EvaluateOrReport(const CheckpointInfo& checkpoint);
  // Has the job's checkpoint_rows know the keys of the test data and take their
  // rows' memory, once.
  absl::Status PrepareRows(int64_t clock);
  // Asked before each read of a checkpoint: says now and then that it goes on,
  // with what has been read, since the scheduler ends the job of a member that
  // says nothing new for long. *read: the bytes so far; outlives it. Errors:
  // Cancelled, by Stop.
  GoOnCheck Reading(std::string what, const uint64_t* read);
  void OnEvaluated(const Evaluation& evaluation,
                   const StoringProgress& storing);
  // The checkpoint is to be marked: it lies in the job's own folder.
  bool Marks(const std::string& path) const;
  void Mark(const std::string& path, bool best);
  void Unmark(const std::string& path, bool best);

  const PreparedJob& job_;
  const Epochs epochs_;
  const Options options_;
  std::atomic<bool> stop_{false};
  CutEvaluator evaluator_;
  bool has_keys_ = false;     // of the test data, in the job's rows
  CheckpointInfo evaluated_;  // the last one
  bool cleared_ = false;      // marks of an earlier evaluator
  bool may_mark_ = true;      // it could, so far
  bool read_ = false;         // the values of the one under way
  std::string best_;          // that is marked; empty: none
  // The last answer: an evaluation, or why there is none.
  std::string answered_;
  std::optional<Evaluation> evaluation_;
  std::string error_;

  Mutex mu_;
  CondVar changed_;
  std::optional<CheckpointInfo> next_ ABSL_GUARDED_BY(mu_);
  std::string under_way_ ABSL_GUARDED_BY(mu_);
  bool finish_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_TRAINING_CHECKPOINT_EVALUATION_H_
