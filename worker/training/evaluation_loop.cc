#include "worker/training/evaluation_loop.h"

#include <optional>
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
  clock = epochs_.EndOf(clock);
  std::optional<EpochCut> cut = EpochCut{CutIdOf(job_, clock), clock};
  while (clock < epochs_.clocks_total) {
    if (cut.has_value()) {
      SYNCLINE_RETURN_IF_ERROR(parameters_.PullCut(cut->id, clock));
    }
    // The next cut before the end of this one, or a worker could run past it.
    SYNCLINE_ASSIGN_OR_RETURN(const std::optional<EpochCut> next,
                              AnnounceCut(job_, epochs_, clock, &parameters_));
    if (cut.has_value()) SYNCLINE_RETURN_IF_ERROR(EvaluateAt(*cut));
    clock = next.has_value() ? next->clock : epochs_.EndOf(clock);
    cut = next;
  }
  SYNCLINE_RETURN_IF_ERROR(parameters_.PullCut(cut->id, clock));
  return evaluator_.Run(*cut, stop_);
}

absl::Status EvaluationLoop::EvaluateAt(const EpochCut& cut) {
  const bool reads_rows = job_.rows != nullptr;
  if (reads_rows) SYNCLINE_RETURN_IF_ERROR(evaluator_.Run(cut, stop_));
  SYNCLINE_RETURN_IF_ERROR(parameters_.EndCut(cut.id, cut.clock));
  return reads_rows ? absl::OkStatus() : evaluator_.Run(cut, stop_);
}

}  // namespace syncline::worker
