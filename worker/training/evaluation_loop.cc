#include "worker/training/evaluation_loop.h"

#include <algorithm>
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
  // Shards have initial values once the first cut is announced on all of them.
  SYNCLINE_RETURN_IF_ERROR(parameters_.Pull(clock));
  // After the last clock that one is left: the attempt before may have ended
  // without its evaluation.
  clock = epochs_.EndOf(std::min(clock, epochs_.clocks_total - 1));
  EpochCut cut = {.id = CutIdOf(job_, clock), .clock = clock};
  while (cut.clock < epochs_.clocks_total) {
    SYNCLINE_RETURN_IF_ERROR(parameters_.PullCut(cut.id, cut.clock));
    SYNCLINE_ASSIGN_OR_RETURN(const EpochCut next, AnnounceNext(cut));
    SYNCLINE_RETURN_IF_ERROR(EvaluateAt(cut));
    cut = next;
  }
  SYNCLINE_RETURN_IF_ERROR(parameters_.PullCut(cut.id, cut.clock));
  return evaluator_.Run(cut, stop_);
}

absl::StatusOr<EpochCut> EvaluationLoop::AnnounceNext(const EpochCut& held) {
  int64_t clock = held.clock;
  for (uint64_t tries = 1;; ++tries) {
    SYNCLINE_ASSIGN_OR_RETURN(const std::optional<EpochCut> next,
                              AnnounceCut(job_, epochs_, clock, &parameters_));
    if (next.has_value()) return *next;
    // The last epoch's cut is there, or an error.
    clock = epochs_.EndOf(clock);
    SYNCLINE_RETURN_IF_ERROR(parameters_.ReportActivity(
        held.clock, "announcing a cut", tries, tries + 1));
  }
}

absl::Status EvaluationLoop::EvaluateAt(const EpochCut& cut) {
  const bool reads_rows = job_.rows != nullptr;
  if (reads_rows) SYNCLINE_RETURN_IF_ERROR(evaluator_.Run(cut, stop_));
  SYNCLINE_RETURN_IF_ERROR(parameters_.EndCut(cut.id, cut.clock));
  return reads_rows ? absl::OkStatus() : evaluator_.Run(cut, stop_);
}

}  // namespace syncline::worker
