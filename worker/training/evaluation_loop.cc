#include "worker/training/evaluation_loop.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace syncline::worker {

EvaluationLoop::EvaluationLoop(
    const PreparedJob& job, const Epochs& epochs, JobExchange exchange,
    WorkerMetrics* metrics, OnEvaluation on_evaluation,
    std::function<void(const std::string&)> on_activity)
    : job_(job),
      epochs_(epochs),
      exchange_(std::move(exchange)),
      evaluator_(job, epochs, &parameters_, metrics, std::move(on_evaluation),
                 std::move(on_activity)) {}

absl::Status EvaluationLoop::Run() {
  absl::Status status = EvaluateAll();
  if (!status.ok() && stop_.load()) return absl::CancelledError("stopped");
  return status;
}

void EvaluationLoop::Stop() {
  stop_.store(true);
  exchange_.Cancel(absl::CancelledError("stopped"));
}

absl::Status EvaluationLoop::EvaluateAll() {
  int64_t clock = job_.assignment.start_clock();
  SYNCLINE_RETURN_IF_ERROR(Annotate(
      epochs_.CheckStart(clock),
      absl::StrCat(job_.task_name(), " of job ", job_.assignment.job_id())));
  if (clock == epochs_.clocks_total) return absl::OkStatus();
  // Shards have initial values once the first cut is announced on all of them.
  SYNCLINE_RETURN_IF_ERROR(parameters_.Pull(clock));
  while (clock < epochs_.clocks_total) {
    clock = epochs_.EndOf(clock);
    SYNCLINE_RETURN_IF_ERROR(EvaluateAt(clock));
  }
  return absl::OkStatus();
}

absl::Status EvaluationLoop::EvaluateAt(int64_t clock) {
  SYNCLINE_RETURN_IF_ERROR(parameters_.PullCut(CutIdOf(job_, clock), clock));
  if (clock == epochs_.clocks_total) return evaluator_.Run(clock, stop_);
  // The next cut before the end of this one, or a worker could run past it.
  SYNCLINE_RETURN_IF_ERROR(
      AnnounceCut(job_, epochs_.EndOf(clock), &parameters_));
  const bool reads_rows = job_.rows != nullptr;
  if (reads_rows) SYNCLINE_RETURN_IF_ERROR(evaluator_.Run(clock, stop_));
  SYNCLINE_RETURN_IF_ERROR(parameters_.EndCut(CutIdOf(job_, clock), clock));
  return reads_rows ? absl::OkStatus() : evaluator_.Run(clock, stop_);
}

}  // namespace syncline::worker
