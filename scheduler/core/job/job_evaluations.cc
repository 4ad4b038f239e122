// A job whose checkpoints are evaluated from their files: Job's part of it.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "scheduler/core/job/job.h"

namespace syncline::scheduler {
namespace {

// The last checkpoint of the present attempt, or the last one that is no later
// than its start; null: none. A later one is of an attempt that the job has
// gone back from.
const CheckpointInfo* LastOf(const JobStatus& job, const StartPoint& start) {
  for (auto it = job.checkpoints().rbegin(); it != job.checkpoints().rend();
       ++it) {
    if (it->attempt() == job.attempt() || it->clock() <= start.clock) {
      return &*it;
    }
  }
  return nullptr;
}

}  // namespace

void Job::BeginEvaluations(ClusterActions* actions) {
  if (!attempt_->evaluations.has_value()) return;
  // The attempt before, or a scheduler before this one, may have left its last
  // one.
  const StartPoint& start = attempt_->start;
  const CheckpointInfo* last = LastOf(status_, start);
  // A job that trains nothing makes none: its result is what it starts from,
  // which is another job's.
  if (last == nullptr && start.from.has_value() && attempt_->clocks_total > 0 &&
      start.clock >= attempt_->clocks_total) {
    last = &*start.from;
  }
  if (last != nullptr) {
    const bool is_evaluated =
        absl::c_any_of(status_.evaluations(), [&](const Evaluation& one) {
          return one.checkpoint() == last->path();
        });
    if (is_evaluated) {
      attempt_->evaluations->OnEvaluatedBefore(last->clock());
    } else {
      attempt_->evaluations->OnWhole(*last);
    }
  }
  if (attempt_->members.WorkersAreDone()) EndCheckpoints();
  SendNextEvaluation(actions);
}

void Job::EndCheckpoints() {
  // A job that has ended early, by its last evaluation, has no later clock.
  int64_t final_clock = attempt_->clocks_total;
  for (const Evaluation& one : status_.evaluations()) {
    if (one.final()) final_clock = std::min(final_clock, one.clock());
  }
  attempt_->evaluations->OnWorkersDone(final_clock);
}

void Job::TakeEvaluationReport(const JobMember& member,
                               const WorkerReport& report,
                               ClusterActions* actions) {
  if (!attempt_->evaluations.has_value()) return;
  CheckpointEvaluations& evaluations = *attempt_->evaluations;
  if (member.IsChief()) {
    const CheckpointInfo* const last = LastOf(status_, attempt_->start);
    if (last != nullptr) evaluations.OnWhole(*last);
    for (const std::string& path : report.deleted_checkpoints()) {
      evaluations.OnDeleted(path);
    }
  }
  if (member.role == JobMember::Role::kEvaluator) {
    if (report.has_evaluation()) {
      evaluations.OnEvaluated(report.evaluation().checkpoint());
    }
    if (!report.failed_checkpoint().empty()) {
      evaluations.OnFailed(report.failed_checkpoint(),
                           report.evaluation_error());
    }
  }
  SendNextEvaluation(actions);
}

void Job::SendNextEvaluation(ClusterActions* actions) {
  if (!attempt_->evaluations.has_value() || stopping()) return;
  for (const JobMember& member : attempt_->members.all()) {
    if (member.role != JobMember::Role::kEvaluator || member.done ||
        member.stage != JobMember::Stage::kPrepared) {
      continue;
    }
    const std::optional<CheckpointInfo> next = attempt_->evaluations->Next();
    if (!next.has_value()) return;
    actions->push_back(SendCommand{member.session, EvaluateCommand(*next)});
  }
}

void Job::RepeatEvaluation(SessionId session, ClusterActions* actions) const {
  if (!attempt_->evaluations.has_value()) return;
  const CheckpointEvaluations& evaluations = *attempt_->evaluations;
  if (evaluations.under_way().has_value()) {
    actions->push_back(
        SendCommand{session, EvaluateCommand(*evaluations.under_way())});
  } else if (evaluations.finishing()) {
    actions->push_back(SendCommand{session, EvaluateCommand({})});
  }
}

SchedulerMessage Job::EvaluateCommand(const CheckpointInfo& checkpoint) const {
  SchedulerMessage message;
  message.mutable_evaluate()->set_job_id(id());
  message.mutable_evaluate()->set_attempt(attempt_->pass.attempt);
  if (!checkpoint.path().empty()) {
    *message.mutable_evaluate()->mutable_checkpoint() = checkpoint;
  }
  return message;
}

std::vector<std::string> Job::TakeEvaluationNotes() {
  if (!attempt_->evaluations.has_value()) return {};
  return attempt_->evaluations->TakeNotes();
}

}  // namespace syncline::scheduler
