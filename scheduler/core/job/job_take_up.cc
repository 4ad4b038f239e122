// A job whose scheduler has started anew, and members that come back to it:
// Job's part of it.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/base/exit_codes.h"
#include "common/job/lost_workers.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/job/attempt_record.h"
#include "scheduler/core/job/job.h"
#include "scheduler/core/job/job_commands.h"

namespace syncline::scheduler {
namespace {

using Role = JobMember::Role;
using Stage = JobMember::Stage;

// A process says what it has said before right after it has registered.
constexpr absl::Duration kSaysDoneWithin = absl::Seconds(10);

}  // namespace

bool Job::AllAreDone() const {
  const int needed = status_.workers_size() + (status_.has_evaluator() ? 1 : 0);
  return status_.state() == RUNNING && needed > 0 &&
         status_.done_ranks_size() == needed;
}

bool Job::CanBeTakenUp() const {
  return (status_.state() == PREPARING || status_.state() == RUNNING) &&
         !AllAreDone() && stored_attempt_.has_value() &&
         stored_attempt_->assignment().attempt() == status_.attempt();
}

void Job::TakeUp(absl::FunctionRef<SessionId()> next_session, absl::Time now,
                 ClusterActions* actions) {
  SYNCLINE_CHECK(CanBeTakenUp());
  const AttemptRecord record = *std::exchange(stored_attempt_, std::nullopt);
  RestoreAttempt(record, next_session, &*attempt_);
  attempt_->progress.emplace(
      static_cast<uint32_t>(record.assignment().workers_size()),
      status_.spec().training().epochs(), attempt_->start.clock);
  attempt_->regime_policy.emplace(
      status_.spec(), static_cast<uint32_t>(record.assignment().workers_size()),
      status_);
  // A job that is not RUNNING yet may have the progress of another attempt.
  if (status_.state() == RUNNING) {
    attempt_->progress->Restore(status_.progress());
  }
  // Its members may take as long again as if it had just begun.
  attempt_->started = now;
  started_ = std::min(started_, now);
  // That a RUNNING job waits for is in the record, until its members say more.
  if (status_.state() == PREPARING) return UpdateWaitingFor(actions);
  attempt_->running_since = std::min(now, since());
  ran_with_ = static_cast<uint32_t>(status_.workers_size());
  attempt_->health.BeginRun(attempt_->members, attempt_->clocks_total, now);
  for (const SessionId session : attempt_->members.Sessions()) {
    JobMember* const member = attempt_->members.Find(session);
    const bool is_lost =
        member->role == Role::kWorker && IsLost(status_, member->rank());
    member->stage = is_lost ? Stage::kGone : Stage::kPrepared;
    member->lost = is_lost;
    if (is_lost) {
      attempt_->progress->Lose(member->rank());
      attempt_->regime_policy->Lose(member->rank());
    }
    member->done = member->role != Role::kPs &&
                   absl::c_linear_search(status_.done_ranks(), member->rank());
    if (member->done) attempt_->health.OnDone(member->member());
  }
  // Its evaluator is told when it is back.
  BeginEvaluations(actions);
}

JobRecord Job::Record(absl::Time now) const {
  JobRecord record = {.status = Status(now)};
  if (stored_attempt_.has_value()) {
    record.attempt = stored_attempt_;
  } else if (status_.state() == PREPARING || status_.state() == RUNNING) {
    record.attempt = RecordOf(status_, *attempt_);
  }
  return record;
}

void Job::OnRestart(absl::Time now, ClusterActions* actions) {
  stored_attempt_.reset();
  if (AllAreDone()) {
    return Succeed("; the scheduler was restarted before they had released it",
                   now, actions);
  }
  Fail(WithWaitingFor("the scheduler was restarted while the job was running"),
       kExitRetryable, now, actions);
  EndIfAllGone(now, actions);
}

void Job::Rebind(SessionId older, SessionId session) {
  JobMember* const member = attempt_->members.Find(older);
  if (member != nullptr) member->session = session;
}

void Job::OnResumed(SessionId older, SessionId session, bool has_job,
                    int64_t clock, absl::Time now, ClusterActions* actions) {
  JobMember* const member = attempt_->members.Find(older);
  SYNCLINE_CHECK(member != nullptr);
  member->session = session;
  member->says_done_by = status_.state() == RUNNING && !has_job
                             ? now + kSaysDoneWithin
                             : absl::InfiniteFuture();
  if (member->role == Role::kWorker) {
    attempt_->progress->RaiseClock(member->rank(), clock);
    actions->push_back(JobChanged{id()});
  }
  if (member->stage == Stage::kPreparing && !has_job) {
    actions->push_back(SendCommand{session, Prepare()});
  }
  if (status_.state() == RUNNING && HearsOfLosses(*member)) {
    for (const JobStatus::Lost& lost : status_.lost_workers()) {
      actions->push_back(SendCommand{session, RemovalCommand(lost)});
    }
  }
  if (status_.state() != RUNNING || member->role == Role::kPs) return;
  if (member->done) {
    // It was let go, and the scheduler that did so may not have told it.
    const bool may_be_let_go =
        status_.spec().has_stop() || (EndsWithTheChief() && !member->IsChief());
    if (may_be_let_go && member->role == Role::kWorker &&
        !DecidesEnd(*member) &&
        (NeedsEvaluator() ? attempt_->members.WorkersAreDone()
                          : attempt_->members.OthersAreDone())) {
      attempt_->leavers.push_back(session);
    }
    return;
  }
  actions->push_back(SendCommand{
      session, RunCommand(id(), attempt_->pass.attempt,
                          attempt_->clocks_per_epoch, attempt_->clocks_total)});
  if (member->role == Role::kEvaluator) RepeatEvaluation(session, actions);
  if (member->role != Role::kWorker) return;
  if (member->IsChief() && !checkpoint_requests_.empty()) {
    actions->push_back(SendCommand{session, WriteCheckpointCommand()});
  }
  for (const ProfileSteps& steps : attempt_->profiles.Of(member->rank())) {
    SchedulerMessage message;
    *message.mutable_profile() = steps;
    actions->push_back(SendCommand{session, std::move(message)});
  }
  if (member->IsChief() && attempt_->regime_wanted.has_value()) {
    SchedulerMessage message;
    *message.mutable_change_regime() = *attempt_->regime_wanted;
    actions->push_back(SendCommand{session, std::move(message)});
  }
}

}  // namespace syncline::scheduler
