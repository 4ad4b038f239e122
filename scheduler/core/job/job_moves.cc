// Checkpoints that a running job is asked for, and jobs that leave a member.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/job/stop_reasons.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/job/job.h"

namespace syncline::scheduler {
namespace {

// A move whose checkpoint has failed is tried again after this.
constexpr absl::Duration kMoveRetry = absl::Seconds(5);
// A step of a large job, and the disk, may take minutes.
constexpr absl::Duration kCheckpointLimit = absl::Minutes(15);
constexpr size_t kErrorBytesMax = 2 << 10;

}  // namespace

absl::Status Job::RequestCheckpoint(uint64_t request, absl::Time now,
                                    ClusterActions* actions) {
  if (!status_.spec().has_checkpoint()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", id(), " has no `checkpoint`, so its ps write none"));
  }
  if (status_.state() != RUNNING || stopping()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", id(), " is ", JobState_Name(status_.state()),
                     stopping() && !IsOver() ? " and about to end" : "",
                     "; only a running job can write a checkpoint"));
  }
  if (checkpoint_requests_.size() >= CheckpointRequests::kMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "job ", id(), " has been asked for ", checkpoint_requests_.size(),
        " checkpoints that it has not made yet"));
  }
  for (const JobMember& member : attempt_->members.all()) {
    if (member.role != JobMember::Role::kWorker || member.done ||
        !IsAbsent(member.session)) {
      continue;
    }
    return absl::UnavailableError(absl::StrCat(
        "job ", id(), ": ", MemberText(member.member()),
        " has not come back since the scheduler was restarted, so it is not "
        "known how far the job is; ask again"));
  }
  SYNCLINE_ASSIGN_OR_RETURN(const SessionId chief, WorkerSession(/*rank=*/0));
  // A chief repeats its reports when it has registered again: one of a
  // checkpoint that is known answers nothing. Another one may be of the same
  // clock, where workers train apart.
  int64_t clock = min_clock();
  std::string known;
  if (!status_.checkpoints().empty()) {
    const CheckpointInfo& last = *status_.checkpoints().rbegin();
    known = last.path();
    if (last.attempt() == status_.attempt()) {
      clock = std::max(clock, last.clock());
    }
  }
  checkpoint_requests_.Add(request, clock, std::move(known),
                           now + kCheckpointLimit);
  // A chief whose stream has closed is told when it has registered again.
  actions->push_back(SendCommand{chief, WriteCheckpointCommand()});
  return absl::OkStatus();
}

SchedulerMessage Job::WriteCheckpointCommand() const {
  SchedulerMessage message;
  message.mutable_write_checkpoint()->set_job_id(id());
  message.mutable_write_checkpoint()->set_attempt(pass().attempt);
  return message;
}

void Job::AnswerCheckpointReport(const WorkerReport& report, absl::Time now,
                                 ClusterActions* actions) {
  if (report.has_checkpoint()) {
    CheckpointInfo whole = report.checkpoint();
    whole.set_attempt(status_.attempt());
    AnswerCheckpoints(
        checkpoint_requests_.TakeReached(whole.clock(), whole.path()), whole,
        now, actions);
  }
  if (report.checkpoint_error().empty()) return;
  AnswerCheckpoints(
      checkpoint_requests_.TakeAll(),
      absl::FailedPreconditionError(absl::StrCat(
          "job ", id(), " has made no checkpoint: ",
          Utf8Prefix(Utf8Text(report.checkpoint_error()), kErrorBytesMax))),
      now, actions);
}

void Job::AnswerOverdueCheckpoints(absl::Time now, ClusterActions* actions) {
  AnswerCheckpoints(
      checkpoint_requests_.TakeOverdue(now),
      absl::DeadlineExceededError(absl::StrCat(
          "job ", id(), " has made no checkpoint within ",
          absl::FormatDuration(kCheckpointLimit), "; it is at clock ",
          min_clock(), "; `synctl why ", id(), "` says what holds it up")),
      now, actions);
}

void Job::AnswerCheckpoints(const std::vector<uint64_t>& requests,
                            const absl::StatusOr<CheckpointInfo>& outcome,
                            absl::Time now, ClusterActions* actions) {
  bool moves = false;  // on, to others
  for (const uint64_t request : requests) {
    if (!attempt_->move.has_value() || attempt_->move->request != request) {
      actions->push_back(CheckpointAnswered{request, outcome});
      continue;
    }
    attempt_->move->request = 0;
    attempt_->move->next = now + kMoveRetry;
    moves = outcome.ok();
  }
  if (!moves || status_.state() != RUNNING || stopping() || IsAtItsEnd()) {
    return;
  }
  // The chief's progress may come after its last checkpoint.
  if (attempt_->clocks_total > 0 &&
      outcome->clock() >= attempt_->clocks_total) {
    return;
  }
  if (attempt_->move->for_scale && HasItsWorkers()) return;
  Abandon(absl::StrCat(kPlannedMove, attempt_->move->why),
          "planned, no restart is counted", now, actions);
}

bool Job::IsAtItsEnd() const {
  const int64_t total = attempt_->clocks_total;
  if (total > 0 && attempt_->progress->ClockOf(/*rank=*/0) >= total) {
    return true;
  }
  if (status_.spec().has_stop() && attempt_->members.OthersAreDone()) {
    return true;
  }
  if (status_.evaluations().empty()) return false;
  // One that an earlier attempt has made may be at the clock of the start.
  const Evaluation& last = *status_.evaluations().rbegin();
  return last.final() && last.clock() > attempt_->start.clock;
}

absl::Status Job::CheckCanLeave(const Member& member, absl::Time now) const {
  // It is about to leave all of them.
  if (stopping()) return absl::OkStatus();
  std::string why;
  if (!status_.spec().has_checkpoint()) {
    why = "it has no `checkpoint` to go on from";
  } else if (member.task().type() == PS &&
             status_.spec().checkpoint().directory().empty()) {
    why =
        "without checkpoint.directory each ps keeps its part of a checkpoint "
        "in its own --checkpoint-dir, where no other ps finds it";
  } else {
    return absl::OkStatus();
  }
  const double seconds = Status(now).progress().seconds_left();
  return absl::FailedPreconditionError(absl::StrCat(
      "job ", id(), " cannot leave ", TaskText(member.task()), ": ", why,
      status_.state() == RUNNING && seconds > 0
          ? absl::StrCat(
                "; it will run for about ",
                absl::FormatDuration(absl::Seconds(std::lround(seconds))))
          : "",
      "; cordon ", TaskText(member.task()),
      ", and it is free when the job has ended"));
}

bool Job::RequestMove(uint64_t request, absl::string_view why, bool for_scale,
                      absl::Time now, ClusterActions* actions) {
  if (status_.state() != RUNNING || stopping() || IsAtItsEnd()) return false;
  if (!attempt_->move.has_value()) attempt_->move = Attempt::Move();
  Attempt::Move& move = *attempt_->move;
  if (move.request == 0) {
    move.why = std::string(why);
    move.for_scale = for_scale;
  }
  // It is to leave a member, too: its number of workers does not keep it.
  move.for_scale = move.for_scale && for_scale;
  if (move.request != 0 || now < move.next) return false;
  move.next = now + kMoveRetry;
  if (!RequestCheckpoint(request, now, actions).ok()) return false;
  move.request = request;
  return true;
}

}  // namespace syncline::scheduler
