// A job that goes on in its attempt when it loses a worker: Job's part of it.

#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/exit_codes.h"
#include "common/job/elastic_validator.h"
#include "common/job/lease_rules.h"
#include "common/job/lost_workers.h"
#include "common/job/step_shares.h"
#include "common/job/strategy_rules.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/job/job.h"
#include "scheduler/core/job/job_commands.h"

namespace syncline::scheduler {
namespace {

constexpr absl::string_view kGoesOn = "; the job goes on with ";

}  // namespace

bool Job::MayGoOnWithout(const JobMember& member) const {
  if (status_.state() != RUNNING || stopping() || member.done ||
      member.role != JobMember::Role::kWorker || member.IsChief()) {
    return false;
  }
  const JobSpec& spec = status_.spec();
  const auto workers = static_cast<uint32_t>(status_.workers_size());
  if (!OutlivesWorkers(SpecForWorkers(spec, workers)) ||
      WorkersLeft(status_) <= spec.resources().min_workers()) {
    return false;
  }
  // The ps have the state, and keep it.
  if (TrainsWithoutPs()) return false;
  // At the cuts of an evaluator the chief cannot make clocks of others: its own
  // push waits there.
  if (LeasesData(spec)) return !status_.has_evaluator() || NeedsEvaluator();
  if (!attempt_->regime_wanted.has_value()) return true;
  const StrategyRule* const wanted =
      FindStrategyRule(attempt_->regime_wanted->change().strategy());
  return wanted != nullptr && wanted->has_ps;
}

bool Job::HasMember(SessionId session) const {
  return absl::c_any_of(attempt_->members.all(), [&](const JobMember& member) {
    return member.session == session && member.stage != JobMember::Stage::kGone;
  });
}

bool Job::GoesOnWithout(SessionId session) const {
  return absl::c_any_of(attempt_->members.all(), [&](const JobMember& member) {
    return member.session == session &&
           member.stage != JobMember::Stage::kGone && MayGoOnWithout(member);
  });
}

void Job::GoOnWithout(JobMember* member, absl::string_view loss, absl::Time now,
                      ClusterActions* actions) {
  member->done = true;
  member->lost = true;
  member->activity.clear();
  attempt_->health.OnLost(member->member());
  attempt_->progress->Lose(member->rank());
  attempt_->lost_at = now;
  AddDoneRank(member->rank());
  JobStatus::Lost* const lost = status_.add_lost_workers();
  lost->set_rank(member->rank());
  *lost->mutable_time() = ToTimestamp(now);
  lost->set_reason(absl::StrCat(
      loss, kGoesOn, CountText(WorkersLeft(status_), "worker"),
      LeasesData(status_.spec())
          ? ", and what was leased to this one is made by the chief"
          : ", and what this one had of the open clock counts if all ps have "
            "it"));
  // A scheduler that starts anew must know of whom the ps refuse.
  actions->push_back(PersistJob{id()});
  actions->push_back(JobChanged{id()});
  for (const JobMember& other : attempt_->members.all()) {
    if (!HearsOfLosses(other)) continue;
    actions->push_back(SendCommand{other.session, RemovalCommand(*lost)});
  }
  if (attempt_->regime_policy.has_value()) {
    attempt_->regime_policy->Lose(member->rank());
  }
  FinishIfDone(actions);
  UpdateWaitingFor(actions);
}

std::string Job::LossesText() const {
  std::string text;
  for (const JobStatus::Lost& lost : status_.lost_workers()) {
    const absl::string_view reason = lost.reason();
    absl::StrAppend(&text, text.empty() ? "; before that " : ", ",
                    reason.substr(0, reason.find(kGoesOn)));
    if (!lost.leases().empty()) absl::StrAppend(&text, ": ", lost.leases());
  }
  return text;
}

// A set of workers is fixed at shard 0 for all; leases are in all shards.
bool Job::HearsOfLosses(const JobMember& member) const {
  return member.role == JobMember::Role::kPs &&
         (member.rank() == 0 || LeasesData(status_.spec()));
}

void Job::OnTakenOut(SessionId session, const WorkerTakenOut& answer,
                     absl::Time now, ClusterActions* actions) {
  const JobMember* const ps = attempt_->members.Find(session);
  if (ps == nullptr || ps->role != JobMember::Role::kPs || stopping() ||
      status_.state() != RUNNING) {
    return;
  }
  const auto lost = absl::c_find_if(
      *status_.mutable_lost_workers(),
      [&](const JobStatus::Lost& of) { return of.rank() == answer.rank(); });
  if (lost == status_.mutable_lost_workers()->end()) return;
  if (!answer.refused().empty()) {
    const absl::string_view loss = lost->reason();
    Fail(WithWaitingFor(absl::StrCat(
             loss.substr(0, loss.find(kGoesOn)),
             "; the job cannot go on without it: ", answer.refused())),
         kExitRetryable, now, actions);
    return;
  }
  if (!LeasesData(status_.spec())) return;
  LostLeases& leases = attempt_->lost_leases[answer.rank()];
  const bool was_settled = leases.settled().has_value();
  const auto& settled = leases.OnTakenOut(
      ps->rank(), answer, static_cast<size_t>(status_.ps_size()));
  if (!settled.has_value()) return;
  SchedulerMessage message;
  ReturnLeases* const returned = message.mutable_return_leases();
  returned->set_job_id(id());
  returned->set_attempt(attempt_->pass.attempt);
  returned->set_rank(answer.rank());
  returned->mutable_clocks()->Add(settled->returned.begin(),
                                  settled->returned.end());
  for (const JobMember& other : attempt_->members.all()) {
    const bool is_told = was_settled && other.session != session;
    if (!HearsOfLosses(other) || is_told) continue;
    actions->push_back(SendCommand{other.session, message});
  }
  if (was_settled) return;
  lost->set_leases(DescribeLeases(*settled, "the chief"));
  actions->push_back(PersistJob{id()});
  actions->push_back(JobChanged{id()});
}

SchedulerMessage Job::RemovalCommand(const JobStatus::Lost& lost) const {
  SchedulerMessage message;
  RemoveWorker* const remove = message.mutable_remove_worker();
  remove->set_job_id(id());
  remove->set_attempt(attempt_->pass.attempt);
  remove->set_rank(lost.rank());
  remove->set_reason(lost.reason());
  return message;
}

}  // namespace syncline::scheduler
