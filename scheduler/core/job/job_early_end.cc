// A job that ends before its last clock: Job's part of it.

#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"
#include "common/job/quorum_validator.h"
#include "common/job/stop_reasons.h"
#include "scheduler/core/job/job.h"

namespace syncline::scheduler {

bool Job::EndsEarly(const JobMember& member, const WorkerReport& report) const {
  return DecidesEnd(member) && status_.spec().has_stop() &&
         report.evaluation().final() &&
         report.evaluation().clock() < attempt_->clocks_total;
}

bool Job::DecidesEnd(const JobMember& member) const {
  return NeedsEvaluator() ? member.role == JobMember::Role::kEvaluator
                          : member.IsChief();
}

void Job::LetWorkersGo(ClusterActions* actions) {
  if (attempt_->progress.has_value()) attempt_->progress->EndEarly();
  for (const JobMember& worker : attempt_->members.all()) {
    // The chief has results to store, unless the evaluator has.
    if (worker.role != JobMember::Role::kWorker || DecidesEnd(worker) ||
        worker.done) {
      continue;
    }
    JobMember* const member = attempt_->members.Find(worker.session);
    if (member == nullptr) continue;
    member->done = true;
    member->activity.clear();
    attempt_->health.OnDone(member->member());
    AddDoneRank(member->rank());
    attempt_->leavers.push_back(member->session);
  }
  if (attempt_->leavers.empty()) return;
  // A member that is done is not asked again, nor by a later scheduler.
  actions->push_back(PersistJob{id()});
  UpdateWaitingFor(actions);
}

bool Job::WasLetGo(SessionId session) const {
  if (!NeedsEvaluator() || !status_.spec().has_stop() ||
      status_.evaluations().empty()) {
    return false;
  }
  const Evaluation& last = *status_.evaluations().rbegin();
  if (!last.final() || last.clock() >= attempt_->clocks_total) return false;
  return absl::c_any_of(attempt_->members.all(), [&](const JobMember& member) {
    return member.session == session && member.done &&
           member.role == JobMember::Role::kWorker;
  });
}

bool Job::EndsWithTheChief() const {
  return LeavesBehind(status_.spec().consistency().mode()) &&
         absl::c_linear_search(status_.done_ranks(), 0u);
}

absl::string_view Job::LeaveReason() const {
  const bool evaluated_early =
      status_.spec().has_stop() && !status_.evaluations().empty() &&
      status_.evaluations().rbegin()->final() &&
      status_.evaluations().rbegin()->clock() < attempt_->clocks_total;
  const bool ends_early = evaluated_early || !attempt_->early_end.empty();
  if (ends_early) return kJobEndsEarly;
  if (EndsWithTheChief()) return "the chief has made the job's last step";
  return status_.lost_workers().empty() ? kJobEndsEarly
                                        : "the others go on without it";
}

std::vector<SessionId> Job::TakeLeavers() {
  return std::exchange(attempt_->leavers, {});
}

}  // namespace syncline::scheduler
