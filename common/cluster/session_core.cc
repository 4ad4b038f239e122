#include "common/cluster/session_core.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/backoff.h"
#include "common/job/kept_results.h"
#include "common/job/orphaned_job.h"

namespace syncline {
namespace {

// Ten minutes of a job that evaluates and saves often.
constexpr size_t kKeptMax = 256;
// Of deleted checkpoints that one report names; a scheduler knows fewer.
constexpr int kDeletedMax = 256;
constexpr Backoff kBackoff = {.initial = absl::Milliseconds(100),
                              .max = absl::Seconds(2)};
// A session that is renewed, as TLS connections are when they are old, is back
// sooner.
constexpr absl::Duration kAnnounceAfter = absl::Seconds(2);
// How soon a task that another process holds is asked for again.
constexpr absl::Duration kTakenRetry = absl::Milliseconds(500);

// True for events that the scheduler would miss: answers, evaluations,
// checkpoints, and of other reports the newest. Heartbeats and reports of a ps
// are made anew all the time; a checkpoint that was refused is asked for again
// by a scheduler that has not heard of it.
bool IsKept(const DaemonMessage& event) {
  if (event.has_report() && !event.report().checkpoint_error().empty()) {
    return false;
  }
  return event.has_done() || event.has_prepared() || event.has_report();
}

// True for a report that stays true and is not said again.
bool IsForGood(const WorkerReport& report) {
  return report.has_evaluation() || report.has_checkpoint() ||
         report.has_regime();
}

// A report of progress or activity, which the next one of its kind replaces.
bool IsReplacedBy(const DaemonMessage& earlier, const DaemonMessage& event) {
  if (!earlier.has_report() || !event.has_report()) return false;
  const WorkerReport& a = earlier.report();
  const WorkerReport& b = event.report();
  return !IsForGood(a) && !IsForGood(b) &&
         a.has_progress() == b.has_progress() &&
         a.has_activity() == b.has_activity();
}

// True for an activity that is over: what a member waited for before it was
// prepared, or done. Where results are that were not stored stays true.
bool IsEndedBy(const DaemonMessage& earlier, const DaemonMessage& event) {
  return (event.has_prepared() || event.has_done()) && earlier.has_report() &&
         earlier.report().has_activity() &&
         !absl::StartsWith(earlier.report().activity(), kNotStored);
}

bool IsCheckpoint(const DaemonMessage& event) {
  return event.has_report() && event.report().has_checkpoint() &&
         !event.report().has_regime();
}

bool IsEvaluation(const DaemonMessage& event) {
  return event.has_report() && event.report().has_evaluation() &&
         !event.report().has_checkpoint() && !event.report().has_regime();
}

// Deletions that a dropped report tells of go into the later report.
void HandOnDeletions(const WorkerReport& earlier, WorkerReport* later) {
  auto deleted = earlier.deleted_checkpoints();
  deleted.MergeFrom(later->deleted_checkpoints());
  if (deleted.size() > kDeletedMax) {
    deleted.DeleteSubrange(0, deleted.size() - kDeletedMax);
  }
  *later->mutable_deleted_checkpoints() = std::move(deleted);
}

// Drops what the scheduler misses least: one so old has mostly arrived.
void DropOldest(std::deque<DaemonMessage>* said) {
  const auto evaluations = absl::c_count_if(*said, IsEvaluation);
  const auto checkpoints = absl::c_count_if(*said, IsCheckpoint);
  // Many of one kind do not push out the other.
  if (evaluations > 0 && evaluations >= checkpoints) {
    said->erase(absl::c_find_if(*said, IsEvaluation));
    return;
  }
  const auto oldest = absl::c_find_if(*said, IsCheckpoint);
  if (checkpoints > 1) {
    const auto next = std::find_if(oldest + 1, said->end(), IsCheckpoint);
    HandOnDeletions(oldest->report(), next->mutable_report());
    said->erase(oldest);
    return;
  }
  // An answer, or a change of the regime, is not given up for a report.
  const auto report = absl::c_find_if(*said, [](const DaemonMessage& event) {
    return event.has_report() && !event.report().has_regime();
  });
  said->erase(report == said->end() ? said->begin() : report);
}

const std::string& JobOf(const DaemonMessage& event) {
  if (event.has_done()) return event.done().job_id();
  if (event.has_prepared()) return event.prepared().job_id();
  return event.report().job_id();
}

// "j-0042" -> 42; 0: it has another form.
uint64_t NumberOf(absl::string_view job_id) {
  uint64_t number = 0;
  return absl::ConsumePrefix(&job_id, "j-") && absl::SimpleAtoi(job_id, &number)
             ? number
             : 0;
}

SchedulerMessage StopCommand(const std::string& job_id, std::string reason) {
  SchedulerMessage message;
  message.mutable_stop()->set_job_id(job_id);
  message.mutable_stop()->set_reason(std::move(reason));
  return message;
}

}  // namespace

SessionCore::SessionCore(Options options)
    : options_(std::move(options)),
      task_(options_.self.task()),
      any_index_(options_.auto_index),
      random_(options_.seed) {}

void SessionCore::SetRunningJob(std::string job_id) {
  if (job_id != running_job_) held_.Clear();
  running_job_ = std::move(job_id);
  orphan_stopped_ = false;
  if (running_job_.empty()) return;
  // A scheduler that sends PrepareJob has received the ends of earlier jobs.
  std::erase_if(said_, [this](const DaemonMessage& event) {
    return JobOf(event) != running_job_;
  });
}

void SessionCore::Start(absl::Time now, SessionActions* actions) {
  connect_by_ = now + options_.connect_timeout;
  Connect(now, actions);
}

void SessionCore::Connect(absl::Time now, SessionActions* actions) {
  state_ = State::kConnecting;
  answer_by_ = now + options_.answer_timeout;
  DaemonMessage hello;
  Register* reg = hello.mutable_register_();
  *reg->mutable_member() = options_.self;
  *reg->mutable_member()->mutable_task() = task_;
  reg->set_auto_index(any_index_);
  reg->set_job_id(running_job_);
  if (!running_job_.empty() && held_.stage() != HeldJob::STAGE_UNSPECIFIED) {
    *reg->mutable_held() = held_;
  }
  reg->set_scheduler_epoch(scheduler_epoch_);
  reg->set_attempt(attempt_);
  reg->set_job_number(job_number_);
  actions->push_back(OpenStream{});
  actions->push_back(WriteEvent{std::move(hello)});
}

void SessionCore::OnMessage(const SchedulerMessage& message, absl::Time now,
                            SessionActions* actions) {
  // A scheduler that has been replaced, and does not know it.
  if (message.scheduler_epoch() < scheduler_epoch_) {
    if (state_ != State::kConnecting || answered_by_older_) return;
    answered_by_older_ = true;
    actions->push_back(
        IgnoreOlder{message.scheduler_epoch(), scheduler_epoch_});
    actions->push_back(CloseStream{});
    return;
  }
  scheduler_epoch_ = message.scheduler_epoch();
  if (state_ == State::kConnecting && message.has_registered()) {
    OnRegistered(message.registered(), now, actions);
  } else if (state_ == State::kRegistered && !message.has_registered()) {
    told_to_end_ = told_to_end_ || message.has_shutdown();
    // Before the daemon gets to it: the stream may break meanwhile.
    if (message.has_prepare()) {
      const std::string& job_id = message.prepare().assignment().job_id();
      // A job of the same id may be another one: that of a scheduler with a new
      // state directory.
      if (job_id != running_job_) said_.clear();
      SetRunningJob(job_id);
      NotePrepare(message.prepare().assignment());
    }
    if (message.has_run() && message.run().job_id() == running_job_ &&
        held_.stage() == HeldJob::PREPARED) {
      held_.set_stage(HeldJob::RUNS);
    }
    actions->push_back(DeliverCommand{message});
  }
}

void SessionCore::OnRegistered(const Registered& registered, absl::Time now,
                               SessionActions* actions) {
  state_ = State::kRegistered;
  ever_registered_ = true;
  task_ = registered.task();
  any_index_ = false;
  failed_attempts_ = 0;
  taken_since_ = absl::InfiniteFuture();
  lost_since_ = absl::InfiniteFuture();
  announce_at_ = absl::InfiniteFuture();
  orphan_stopped_ = false;
  ends_with_scheduler_ = registered.ends_with_scheduler();
  if (registered.heartbeat_seconds() > 0) {
    heartbeat_ = absl::Seconds(registered.heartbeat_seconds());
  }
  heartbeat_at_ = now + heartbeat_;
  actions->push_back(DeliverRegistered{registered});
  for (const DaemonMessage& event : said_) {
    actions->push_back(WriteEvent{event});
  }
}

void SessionCore::OnStreamEnded(const absl::Status& why, absl::Time now,
                                SessionActions* actions) {
  if (state_ == State::kClosed) return;
  const bool was_registered = state_ == State::kRegistered;
  const bool unanswered =
      state_ == State::kConnecting && answer_by_ == absl::InfiniteFuture();
  if (std::exchange(answered_by_older_, false)) {
    last_error_ = absl::FailedPreconditionError(
        absl::StrCat("a scheduler answered that has been replaced by the one "
                     "with epoch ",
                     scheduler_epoch_));
  } else if (unanswered) {
    last_error_ = absl::DeadlineExceededError("Register was not answered");
  } else {
    last_error_ = why;
  }
  if (was_registered) {
    lost_since_ = now;
    lost_why_ = why;
    // The end of the whole cluster is not the loss of a member.
    if (!told_to_end_) announce_at_ = now + kAnnounceAfter;
  }
  if (!was_registered && RefusedForGood(why, now)) return Reject(why, actions);
  if (HasGivenUp(now)) {
    return Reject(absl::UnavailableError(absl::StrCat(
                      "scheduler at ", options_.scheduler_address,
                      " was not found within ",
                      absl::FormatDuration(options_.connect_timeout), ": ",
                      last_error_.message())),
                  actions);
  }
  state_ = State::kWaiting;
  retry_at_ = now + (absl::IsAlreadyExists(why)
                         ? kTakenRetry
                         : BackoffDelay(kBackoff, failed_attempts_++,
                                        random_.Uniform()));
}

bool SessionCore::RefusedForGood(const absl::Status& why, absl::Time now) {
  switch (why.code()) {
    case absl::StatusCode::kAlreadyExists:
      if (taken_since_ == absl::InfiniteFuture()) taken_since_ = now;
      [[fallthrough]];
    case absl::StatusCode::kFailedPrecondition:
      if (options_.auto_index && !any_index_) {
        any_index_ = true;  // another index will do
        return false;
      }
      return why.code() == absl::StatusCode::kFailedPrecondition ||
             now - taken_since_ >= options_.task_taken_timeout;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

bool SessionCore::HasGivenUp(absl::Time now) const {
  return !ever_registered_ && now >= connect_by_;
}

void SessionCore::Reject(absl::Status status, SessionActions* actions) {
  state_ = State::kClosed;
  actions->push_back(DeliverRejected{std::move(status)});
}

void SessionCore::OnTick(absl::Time now, SessionActions* actions) {
  switch (state_) {
    case State::kConnecting:
      if (now >= answer_by_) {
        answer_by_ = absl::InfiniteFuture();
        actions->push_back(CloseStream{});
      }
      break;
    case State::kWaiting:
      if (now >= retry_at_) Connect(now, actions);
      break;
    case State::kRegistered:
      if (now >= heartbeat_at_) {
        DaemonMessage heartbeat;
        heartbeat.mutable_heartbeat();
        actions->push_back(WriteEvent{std::move(heartbeat)});
        heartbeat_at_ = now + heartbeat_;
      }
      break;
    case State::kIdle:
    case State::kClosed:
      break;
  }
  if (now >= announce_at_ && state_ != State::kRegistered &&
      state_ != State::kClosed) {
    Announce(actions);
  }
  if (!orphan_stopped_ && state_ != State::kRegistered &&
      state_ != State::kClosed && now - lost_since_ >= OrphanTimeout()) {
    OnOrphanTimeout(actions);
  }
}

void SessionCore::Announce(SessionActions* actions) {
  announce_at_ = absl::InfiniteFuture();
  std::string then =
      ends_with_scheduler_
          ? "this process ends, because the cluster is there for one job"
      : running_job_.empty() ? "nothing: this process goes on looking for it"
                             : "the job goes on until then; then it is "
                               "stopped here, and this process goes on looking "
                               "for the scheduler";
  actions->push_back(
      AnnounceLoss{running_job_, OrphanTimeout(), std::move(then), lost_why_});
}

void SessionCore::NotePrepare(const JobAssignment& assignment) {
  attempt_ = std::max(attempt_, assignment.attempt());
  job_number_ = std::max(job_number_, NumberOf(assignment.job_id()));
  if (held_.attempt() == assignment.attempt() &&
      held_.stage() != HeldJob::STAGE_UNSPECIFIED) {
    return;  // repeated
  }
  held_.Clear();
  held_.set_attempt(assignment.attempt());
  held_.set_stage(HeldJob::LOADING);
  held_.set_clock(assignment.start_clock());
}

void SessionCore::NoteEvent(const DaemonMessage& event) {
  if (held_.stage() == HeldJob::STAGE_UNSPECIFIED) return;
  if (event.has_prepared() && event.prepared().job_id() == running_job_) {
    // A ps that is prepared serves.
    held_.set_stage(task_.type() == PS ? HeldJob::RUNS : HeldJob::PREPARED);
    *held_.mutable_prepared() = event.prepared();
  } else if (event.has_done() && event.done().job_id() == running_job_) {
    held_.set_stage(HeldJob::DONE);
    *held_.mutable_done() = event.done();
  } else if (event.has_report() && event.report().has_progress() &&
             event.report().job_id() == running_job_) {
    held_.set_clock(std::max(held_.clock(), event.report().progress().clock()));
  }
}

absl::Status SessionCore::OutOfReach() const {
  return absl::UnavailableError(
      OrphanedText(options_.scheduler_address, OrphanTimeout()));
}

void SessionCore::OnOrphanTimeout(SessionActions* actions) {
  orphan_stopped_ = true;
  if (!running_job_.empty()) {
    actions->push_back(DeliverCommand{
        StopCommand(running_job_, std::string(OutOfReach().message()))});
  }
  if (ends_with_scheduler_) Reject(OutOfReach(), actions);
}

void SessionCore::Send(DaemonMessage event, SessionActions* actions) {
  if (state_ == State::kClosed) return;
  // A process that is told to end knows its job, and not the attempt.
  if (event.has_done() && event.done().attempt() == 0 &&
      event.done().job_id() == running_job_) {
    event.mutable_done()->set_attempt(held_.attempt());
  }
  NoteEvent(event);
  if (IsKept(event)) Remember(event);
  if (state_ == State::kRegistered) {
    actions->push_back(WriteEvent{std::move(event)});
  }
}

void SessionCore::Remember(const DaemonMessage& event) {
  std::erase_if(said_, [&](const DaemonMessage& earlier) {
    return IsReplacedBy(earlier, event) || IsEndedBy(earlier, event);
  });
  said_.push_back(event);
  if (said_.size() > kKeptMax) DropOldest(&said_);
}

}  // namespace syncline
