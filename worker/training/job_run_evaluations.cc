// Runs that evaluate and do not train: JobRun's part of it.

#include <algorithm>
#include <optional>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/evaluate_validator.h"
#include "common/system/log.h"
#include "worker/training/job_run.h"
#include "worker/training/result_export.h"

namespace syncline::worker {

absl::Status JobRun::EvaluateAndUpload() {
  if (OnlyEvaluates(job_->spec())) return EvaluateStartAndUpload();
  LogInfo("job running")
      .Job(job_id())
      .Field("task", job_->task_name())
      .Field("device", job_->device_text);
  Epochs epochs;
  {
    MutexLock lock(&mu_);
    epochs = {run_->clocks_per_epoch(), run_->clocks_total()};
  }
  if (epochs.steps_per_epoch <= 0 || epochs.clocks_total <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "RunJob: ", epochs.steps_per_epoch, " clocks an epoch and ",
        epochs.clocks_total, " in all; are all daemons of one version?"));
  }
  if (EvaluatesCheckpoints(job_->spec())) {
    return EvaluateCheckpointsAndUpload(epochs);
  }
  ResultExport exported(*job_, dir_, &results_, &reporter_);
  SYNCLINE_ASSIGN_OR_RETURN(JobExchange exchange, MakeExchange());
  EvaluationLoop evaluation(
      *job_, epochs, std::move(exchange), metrics_,
      [&](const Evaluation& e, const StoringProgress& storing) {
        TellGpuWorked();
        if (e.best()) exported.WriteBest(e, storing);
        reporter_.SendEvaluation(e);
      },
      [this](const std::string& what) { reporter_.SendActivity(what); });
  {
    MutexLock lock(&mu_);
    if (stop_) return absl::CancelledError("stopped");
    evaluation_ = &evaluation;
  }
  const absl::Cleanup forget = [this] {
    MutexLock lock(&mu_);
    evaluation_ = nullptr;
  };
  metrics_->OnJobBegins(MetricsJob());
  const absl::Status status = evaluation.Run();
  metrics_->OnJobEnds();
  SYNCLINE_RETURN_IF_ERROR(status);
  return exported.PutEvaluatorResults(evaluation.evaluations());
}

CheckpointEvaluation::Options JobRun::CheckpointEvaluationOptions(
    ResultExport* exported) {
  return {.metrics = metrics_,
          .on_evaluation =
              [=, this](const Evaluation& e, const StoringProgress& storing) {
                TellGpuWorked();
                // With tables the best checkpoint is kept, which has them all.
                if (e.best() && job_->rows == nullptr) {
                  exported->WriteBest(e, storing);
                }
                reporter_.SendEvaluation(e);
              },
          .on_activity =
              [this](const std::string& what) { reporter_.SendActivity(what); },
          .on_failed =
              [this](const std::string& path, const std::string& why) {
                reporter_.SendEvaluationFailed(path, why);
              }};
}

absl::Status JobRun::EvaluateCheckpointsAndUpload(const Epochs& epochs) {
  ResultExport exported(*job_, dir_, &results_, &reporter_);
  CheckpointEvaluation evaluation(*job_, epochs,
                                  CheckpointEvaluationOptions(&exported));
  {
    MutexLock lock(&mu_);
    if (stop_) return absl::CancelledError("stopped");
    checkpoint_evaluation_ = &evaluation;
    if (evaluation_wanted_.has_value()) evaluation.Request(*evaluation_wanted_);
  }
  const absl::Cleanup forget = [this] {
    MutexLock lock(&mu_);
    checkpoint_evaluation_ = nullptr;
  };
  metrics_->OnJobBegins(MetricsJob());
  const absl::Status status = evaluation.Run();
  metrics_->OnJobEnds();
  SYNCLINE_RETURN_IF_ERROR(status);
  early_end_ = evaluation.stop_reason();
  if (!early_end_.empty()) {
    LogInfo("the job ends early").Job(job_id()).Field("why", early_end_);
    SYNCLINE_RETURN_IF_ERROR(exported.PutModelAndTables(
        [&](uint32_t table) { return evaluation.ReaderOf(table); }));
  }
  return exported.PutEvaluatorResults(evaluation.evaluations());
}

absl::Status JobRun::EvaluateStartAndUpload() {
  const CheckpointInfo& start = assignment_.start_from();
  LogInfo("job running")
      .Job(job_id())
      .Field("task", job_->task_name())
      .Field("device", job_->device_text)
      .Field("evaluates", start.path());
  ResultExport exported(*job_, dir_, &results_, &reporter_);
  CheckpointEvaluation::Options options =
      CheckpointEvaluationOptions(&exported);
  options.marks = false;  // it may be another job's
  // Its clock is the last one.
  const int64_t clock = std::max<int64_t>(1, start.clock());
  CheckpointEvaluation evaluation(*job_, Epochs{clock, clock},
                                  std::move(options));
  {
    MutexLock lock(&mu_);
    if (stop_) return absl::CancelledError("stopped");
    checkpoint_evaluation_ = &evaluation;
  }
  metrics_->OnJobBegins(MetricsJob());
  const absl::Status status = evaluation.Evaluate(start);
  metrics_->OnJobEnds();
  {
    MutexLock lock(&mu_);
    checkpoint_evaluation_ = nullptr;
  }
  SYNCLINE_RETURN_IF_ERROR(status);
  return exported.PutEvaluatorResults(evaluation.evaluations(),
                                      ParameterExchange::LeftOut());
}

}  // namespace syncline::worker
