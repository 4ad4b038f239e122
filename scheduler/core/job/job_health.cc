#include "scheduler/core/job/job_health.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/job/evaluate_validator.h"

namespace syncline::scheduler {
namespace {

absl::Duration StepTimeout(const JobSpec& spec) {
  const double seconds = spec.limits().step_timeout_seconds();
  return absl::Seconds(seconds > 0 ? seconds : 60);
}

// How long two members may be out of each other's reach. The loss of a host is
// noticed sooner, by its lease. The members themselves wait for one time-out,
// so a network that is back by then costs no job.
absl::Duration UnreachableMax(const JobSpec& spec) {
  return std::max(absl::Seconds(10), StepTimeout(spec));
}

// How long a member may work at one step. Other workers that wait for it give
// up after one time-out; this is for members that no other member waits for.
absl::Duration StandstillMax(const JobSpec& spec) {
  // Reports come every second or so.
  return std::max(absl::Seconds(10), 10 * StepTimeout(spec));
}

}  // namespace

JobHealth::JobHealth(const JobSpec& spec, absl::Duration root_cause_grace)
    : unreachable_max_(UnreachableMax(spec)),
      standstill_max_(StandstillMax(spec)),
      root_cause_grace_(root_cause_grace),
      evaluations_hold_(!EvaluatesCheckpoints(spec)) {}

void JobHealth::BeginRun(const JobMembers& members, int64_t clocks_total,
                         absl::Time now) {
  watchdog_.emplace(standstill_max_, evaluations_hold_);
  for (const JobMember& member : members.all()) {
    if (member.role == JobMember::Role::kPs) continue;
    const bool trains = member.role == JobMember::Role::kWorker;
    watchdog_->Begin(member.member(), trains ? clocks_total : 0, now);
  }
}

void JobHealth::OnUnreachable(const Member& reporter, const Member& peer,
                              const PeerUnreachable& report, absl::Time now) {
  unreachable_.OnReport(reporter, peer, report, now);
}

void JobHealth::OnReport(const Member& member, const WorkerReport& report,
                         bool has_new_evaluation, absl::Time now) {
  if (!watchdog_.has_value()) return;
  if (!report.has_evaluation() || has_new_evaluation) {
    return watchdog_->OnReport(member.incarnation(), report, now);
  }
  WorkerReport others = report;
  others.clear_evaluation();
  watchdog_->OnReport(member.incarnation(), others, now);
}

void JobHealth::OnDone(const Member& member) {
  watchdog_->End(member.incarnation());
}

void JobHealth::OnLost(const Member& member) {
  watchdog_->End(member.incarnation());
  unreachable_.Forget(member);
  if (suspicion_.has_value() &&
      suspicion_->incarnation == member.incarnation()) {
    suspicion_.reset();
  }
}

bool JobHealth::OnFailure(const Member& member, int code, bool retryable,
                          absl::string_view reason, absl::Time now) {
  const std::optional<std::string> apart =
      unreachable_.Longest(absl::ZeroDuration(), now);
  // A member that stops ends the calls of others with Cancelled; it, and one
  // whose certificate was revoked, is lost within moments.
  const bool is_outage =
      code == static_cast<int>(absl::StatusCode::kUnavailable) ||
      code == static_cast<int>(absl::StatusCode::kCancelled) ||
      code == static_cast<int>(absl::StatusCode::kUnauthenticated);
  if (!is_outage && !(apart.has_value() && retryable)) return false;
  if (!suspicion_.has_value()) {
    suspicion_ =
        Suspicion{apart.has_value() ? absl::StrCat(*apart, "; ", reason)
                                    : std::string(reason),
                  now + root_cause_grace_, member.incarnation()};
  }
  return true;
}

std::optional<std::string> JobHealth::Check(absl::Time now) const {
  if (suspicion_.has_value() && now >= suspicion_->until) {
    return suspicion_->reason;
  }
  std::optional<std::string> apart =
      unreachable_.Longest(unreachable_max_, now);
  if (apart.has_value() || !watchdog_.has_value()) return apart;
  return watchdog_->Check(now);
}

}  // namespace syncline::scheduler
