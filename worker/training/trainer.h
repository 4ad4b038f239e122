#ifndef SYNCLINE_WORKER_TRAINING_TRAINER_H_
#define SYNCLINE_WORKER_TRAINING_TRAINER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "proto/job.pb.h"
#include "proto/profile.pb.h"
#include "proto/scheduler.pb.h"
#include "worker/data/epochs.h"
#include "worker/data/prefetcher.h"
#include "worker/evaluation/cut_evaluator.h"
#include "worker/exchange/parameter_exchange.h"
#include "worker/exchange/step_folds.h"
#include "worker/export/table_export.h"
#include "worker/job/job_exchange.h"
#include "worker/job/prepared_job.h"
#include "worker/job/progress_meter.h"
#include "worker/job/worker_metrics.h"
#include "worker/training/checkpointer.h"
#include "worker/training/local_rounds.h"
#include "worker/training/loss_history.h"
#include "worker/training/pass_sampler.h"
#include "worker/training/regime_changer.h"
#include "worker/training/regime_trials.h"
#include "worker/training/step_profiler.h"
#include "worker/training/step_rows.h"
#include "worker/training/step_scaler.h"

namespace syncline::worker {

// The training loop of one rank of one job. One use, one thread; Stop from any.
//
//   batch -> forward, backward -> gradients to the exchange, as they become
//                                 ready
//         <- values of the next step, straight into the executor
//
// In LOCAL a clock has several of these steps, which the rank makes alone, and
// what they have changed goes to the exchange (LocalRounds).
//
// The chief also fills the initial values, announces each epoch's end as a cut,
// reads the state at the cut and evaluates it; where the job has an evaluator,
// it announces the first cut and reads the last. It has the job's checkpoints
// made, too. In sync mode the parameters
// depend on the job alone: not on timing, not on the number of ps.
class Trainer {
 public:
  struct Options {
    WorkerMetrics* metrics = nullptr;  // outlives the trainer
    // About twice a second, from a thread of the trainer, and once at the end.
    std::function<void(const WorkerProgress&)> on_progress;
    // The chief's of a job without ps, with each progress at which it has
    // changed; may be null.
    std::function<void(const ParameterExchange::LeftOut&)> on_left_out =
        nullptr;
    // The chief's evaluations, from the training thread.
    OnEvaluation on_evaluation;
    // The evaluation, or the long round of local steps, that is going on, in
    // words; empty: it is over. From the training thread.
    std::function<void(const std::string& what)> on_activity;
    // The chief's: what becomes of the job's checkpoints.
    Checkpointer::Options checkpoints;
    // The job trains by these from the next step on; may be null where it does
    // not change. From the training thread.
    std::function<void(const RegimeSchedule&)> on_regimes = nullptr;
    // The chief's: what has become of a change that was asked for.
    std::function<void(const RegimeTransition&)> on_regime_change = nullptr;
    // Gets the profiles that RequestProfile asked for, from a thread of the
    // trainer. May block.
    std::function<void(const std::string& name, const StepProfile&)> on_profile;
  };
  // `job` is complete (PrepareJob found no problem) and outlives the trainer.
  // `exchange` works on the memory of its executor.
  Trainer(const PreparedJob& job, JobExchange exchange, Options options);

  // Trains until the last clock; the chief's executor then holds the final
  // parameters. Blocks. Errors: ParameterExchange's; FailedPrecondition: the
  // loss is not finite and the job's policy is to fail, with node, step and
  // worker; Cancelled: by Stop.
  absl::Status Run();

  // The chief's, after an error of Run by which the job goes back to its last
  // checkpoint: makes one more of what this process has by itself, as
  // Checkpointer::SaveAlone says. Blocks.
  void SaveAlone();
  // Ends SaveAlone, now or later. Thread-safe.
  void EndSaving() {
    if (checkpoints_.has_value()) checkpoints_->EndSaving();
  }

  // Ends Run with Cancelled: calls under way are cut short, a step or a batch
  // that is being computed is finished first. Thread-safe.
  void Stop();

  // Records the next steps, once those that were asked for before are done;
  // fewer where the job has no more or fails, none once it is stopped. The
  // scheduler asks for kProfilesPerWorkerMax at most; others are dropped.
  // Thread-safe.
  void RequestProfile(const ProfileSteps& request) {
    profiler_.Request(request);
  }

  // The chief's: has the regime changed as soon as possible, and tells
  // on_regime_change. Thread-safe.
  void RequestRegime(const RegimeChange& change, const std::string& reason);
  // Has the chief make one more checkpoint, as Checkpointer says. Thread-safe.
  void RequestCheckpoint() {
    if (checkpoints_.has_value()) checkpoints_->Request();
  }

  // Why the job has ended before its last clock (StopSpec); empty: it has not.
  // After Run.
  std::string early_end() const;

  // The chief's, after Run; none where the job has an evaluator.
  absl::Span<const Evaluation> evaluations() const {
    if (!evaluator_.has_value()) return {};
    return evaluator_->evaluations();
  }
  // Likewise: reads a table, by JobSpec.tables index, as it is after the last
  // clock, until EndTables. Uses this. Errors: ParameterExchange's, the sink's.
  TableReader ReaderOf(uint32_t table);
  // Nothing is scanned any more.
  absl::Status EndTables();
  // Blocks until the checkpoint that is being written, if one is, is whole or
  // has failed. After Run.
  void FinishCheckpoint();
  // Of the whole run.
  WorkerProgress Totals() const;
  // ParameterExchange's: none where the ps of the job know.
  std::optional<ParameterExchange::LeftOut> left_out() const {
    return parameters_.left_out();
  }
  // history.csv, after Run. REQUIRES: this is the chief.
  std::string HistoryCsv() const;
  // The same points; `now` by the wall clock.
  std::vector<HistoryPoint> History(absl::Time now) const;

 private:
  // The time since the previous lap.
  class Stopwatch {
   public:
    absl::Duration Lap() {
      const absl::Time now = MonotonicNow();
      return now - std::exchange(last_, now);
    }

   private:
    absl::Time last_ = MonotonicNow();
  };
  // A step on its way through Begin, ComputeGradient, SendGradient and
  // AwaitValues.
  struct OpenStep {
    int64_t clock = 0;
    int64_t next_clock = 0;  // NextStep
    bool is_last = false;
    bool pulls = true;     // the next step's values
    bool is_late = false;  // its gradient is that of an earlier step
    std::optional<uint32_t> for_rank = {};  // ParameterExchange::Step's
    const Batch* batch = nullptr;           // null: the step has several
    uint64_t samples = 0;                   // 0 once the step is skipped
    double loss_sum = 0;
    std::string overflow = {};                      // of its gradient, in words
    absl::Duration pushing = absl::ZeroDuration();  // while backward ran
    ProgressMeter::StepTimes times = {};
    Stopwatch watch = {};
  };

  // Brings the values that this rank's first step computes with. `clock`: the
  // first of this attempt.
  absl::Status Start(int64_t clock, int64_t first_step);
  absl::Status Train();
  absl::Status Step(int64_t clock);
  // The clock of the step after `clock`: the next one, but where others have
  // gone on without this rank.
  int64_t ClockAfter(int64_t clock) const;
  // With leased data: does what is to be done between this rank's step `clock`,
  // which was made, and its next one, which it returns.
  absl::StatusOr<int64_t> EndLeasedStep(int64_t clock);
  // Learns the step behind `next`, and has its batch read. Errors: Internal: no
  // answer has said which it is.
  absl::Status TakeLease(int64_t next);
  // The rank's step after `clock`, as far as it is known before `clock` is
  // made; the job's number of clocks: there is none.
  int64_t NextStep(int64_t clock) const {
    return leases_ ? next_lease_ : clock + 1;
  }
  // Makes the clocks of lost workers that answers have given to this rank, the
  // chief. True if there was one: the values that were read are others then.
  absl::StatusOr<bool> MakeReturned();
  absl::Status MakeForLost(const ParameterExchange::ReturnedClock& lost);
  // Leaves out the steps between `clock`, which was made, and `*next`, with
  // their batches, and reads the values of the open clock, which it puts there.
  absl::Status LeaveOut(int64_t clock, int64_t* next);
  // Shares the samples from step `clock` on, which is the next one, with those
  // workers alone that are not lost.
  void FollowLosses(int64_t clock);
  // Has the cuts announced that are due where step `clock` is the next.
  absl::Status BeforeStep(int64_t clock);
  // Does the work of the cuts where all steps before `clock` are made.
  absl::Status AfterStep(int64_t clock);
  // The regime may change with step `clock`: has it changed there, and follows
  // what the shards say.
  absl::Status ChangeRegime(int64_t clock);
  absl::Status FollowRegimes(int64_t clock);
  // By the step's clock: the rate that the owners update with.
  std::function<double(int64_t clock)> LearningRates() const;
  // Has the state before step `clock` written: the cut there is announced.
  absl::Status WriteCheckpoint(int64_t clock);
  // Waits for the batch and its rows, and opens the step at the
  // exchange.
  absl::Status Begin(OpenStep* step, Prefetcher* batches);
  // In place of Begin and ComputeGradient, in LOCAL: makes the local steps, and
  // hands over what they have changed.
  absl::Status TrainRound(OpenStep* step);
  // In place of Begin and ComputeGradient: hands over the late gradient that is
  // kept, and leaves the step's batch out. Blocks where rows are read for that.
  absl::Status PushLate(OpenStep* step);
  // The padding of a batch that is about to be computed.
  void CountFed(const Batch& batch);
  // Forward and backward, or neither where there is no sample. A loss that is
  // not finite skips the step if the job wants that.
  absl::Status ComputeGradient(OpenStep* step);
  // Hands over what backward has not sent yet.
  void SendGradient(OpenStep* step);
  // Blocks until the gradient has been taken and the next values are here.
  absl::Status AwaitValues(OpenStep* step);
  // The mean over the step's samples: NaN where it was abandoned, none where
  // there was none.
  std::optional<double> LossOf(const OpenStep& step) const;
  absl::StatusOr<Executor::StepResult> Compute(int64_t clock,
                                               const Batch& batch,
                                               absl::Duration* pushing);
  // Says so where this step has no part in folds of statistics to come, which
  // others may wait with.
  absl::Status LeaveFolds(const Batch& batch);
  // True if the job wants steps whose loss is not finite to be left out.
  bool ShouldSkipStep(const absl::Status& loss);
  // True if another worker's part in this step's reductions was not finite, and
  // all of this worker's were.
  bool IsSpoiltByOthers() const {
    return folds_ != nullptr && folds_->spoilt_by_others();
  }
  void WarnOfOthers(int64_t clock);
  // True once per kWarningPeriod.
  bool MayWarn();
  // Leaves the worker that is to blame the time to say why the job fails.
  void AwaitStop() ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<const Batch*> NextBatch(Prefetcher* batches);
  // Rows of `table` at the final cut. `keys` are unique.
  absl::Status ReadTable(uint32_t table, absl::Span<const int64_t> keys,
                         float* values);
  // For an attempt that begins after the last clock: the chief's executor has
  // the values of the last cut, not the initial ones. Evaluates them.
  absl::Status ReadLast();
  // Has the cut at the end of the epoch that contains step `clock` announced.
  absl::Status Announce(int64_t clock);
  // True if this rank reads the state at a cut before it goes on.
  bool ReadsCutAt(int64_t clock) const {
    return ReadsCutUpTo(clock - 1, clock);
  }
  // The same between two of its steps.
  bool ReadsCutUpTo(int64_t clock, int64_t next) const;
  // True if this rank, on its way from step `clock` to `next`, ends a cut that
  // holds others, so that it may wait for no later values before.
  bool WaitsAtCutUpTo(int64_t clock, int64_t next) const;
  // True if an epoch ends whose cut was not to be had: the next is announced
  // without it.
  bool LacksCutAt(int64_t clock) const;
  absl::Status EndEpoch(int64_t clock);
  // The same where the job may end there: the cut is held until the evaluation
  // has decided, so no rank gets past an early end.
  absl::Status EndEpochOrJob(const EpochCut& cut);
  // The last clock, or that of an early end.
  int64_t final_clock() const {
    return early_end_.value_or(epochs_.clocks_total);
  }
  absl::Status Evaluate(const EpochCut& cut);
  // Of the final values, which no loss is computed with. Errors:
  // FailedPrecondition: one is not finite, and the job is to fail then.
  absl::Status CheckFinalValues();
  void FillInitialValues();
  // How much of what was computed was padding, where there was any.
  void LogPadding() const;

  const PreparedJob& job_;
  const Options options_;
  Executor& executor_;
  Prefetcher prefetcher_;
  const Epochs epochs_;
  ProgressMeter meter_;
  LossHistory history_;
  Stopwatch history_watch_;
  int64_t fed_values_ = 0;  // of samples, in all steps
  int64_t fed_padding_ = 0;
  int64_t late_gradients_ = 0;  // that were applied
  absl::Time next_warning_ = absl::InfinitePast();
  std::atomic<bool> stop_{false};
  const bool leases_;
  int64_t next_lease_ = 0;   // with leases: the step after the next one
  int64_t made_ = -1;        // with leases: this rank's latest step
  size_t lost_workers_ = 0;  // that this rank knows of
  StepProfiler profiler_;
  Mutex mu_;
  CondVar stopped_;
  const JobExchange exchange_;
  ParameterExchange& parameters_ = *exchange_.parameters;
  StepFolds* const folds_ = exchange_.folds.get();  // null: nothing to fold
  StepScaler scaler_;
  PassSampler passes_;
  std::optional<StepRows> rows_;             // where the job has tables
  std::optional<LocalRounds> local_;         // in LOCAL
  std::optional<CutEvaluator> evaluator_;    // where this rank evaluates
  std::optional<Checkpointer> checkpoints_;  // the chief's
  int64_t ended_ = -1;  // AfterStep has come to its end for this clock
  std::optional<RegimeChanger> changer_;  // likewise
  std::optional<RegimeTrials> trials_;    // likewise, where the job makes some
  // The next that this rank reads; the last one from then on. The chief's.
  std::optional<EpochCut> cut_;
  int64_t announced_ = -1;            // the clock of this rank's latest cut
  std::optional<int64_t> early_end_;  // its clock, where the job has ended
};

// How a worker reads its batches. REQUIRES: `job` is a worker's, complete.
Prefetcher::Options PrefetcherOptionsOf(const PreparedJob& job);

// How a job's clocks fall into epochs. REQUIRES: `job` is a worker's, complete.
Epochs EpochsOf(const PreparedJob& job);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_TRAINING_TRAINER_H_
