#include "common/cluster/session_core.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/backoff.h"
#include "common/job/kept_results.h"

namespace syncline {
namespace {

constexpr size_t kKeptMax = 64;
constexpr Backoff kBackoff = {.initial = absl::Milliseconds(100),
                              .max = absl::Seconds(2)};
// How soon a task that another process holds is asked for again.
constexpr absl::Duration kTakenRetry = absl::Milliseconds(500);

// True for events that the scheduler would miss: answers, evaluations, and of
// reports the newest. Heartbeats and reports of a ps are made anew all the
// time.
bool IsKept(const DaemonMessage& event) {
  return event.has_done() || event.has_prepared() || event.has_report();
}

// A report of progress or activity, which the next one of its kind replaces.
bool IsReplacedBy(const DaemonMessage& earlier, const DaemonMessage& event) {
  if (!earlier.has_report() || !event.has_report()) return false;
  const WorkerReport& a = earlier.report();
  const WorkerReport& b = event.report();
  return !a.has_evaluation() && !b.has_evaluation() &&
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

const std::string& JobOf(const DaemonMessage& event) {
  if (event.has_done()) return event.done().job_id();
  if (event.has_prepared()) return event.prepared().job_id();
  return event.report().job_id();
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
  actions->push_back(OpenStream{});
  actions->push_back(WriteEvent{std::move(hello)});
}

void SessionCore::OnMessage(const SchedulerMessage& message, absl::Time now,
                            SessionActions* actions) {
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
  last_error_ = unanswered
                    ? absl::DeadlineExceededError("Register was not answered")
                    : why;
  if (was_registered) {
    lost_since_ = now;
    // The end of the whole cluster is not the loss of a member.
    if (!told_to_end_) Announce(why, actions);
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
  if (!orphan_stopped_ && state_ != State::kRegistered &&
      state_ != State::kClosed &&
      now - lost_since_ >= options_.orphan_timeout) {
    OnOrphanTimeout(actions);
  }
}

void SessionCore::Announce(const absl::Status& why,
                           SessionActions* actions) const {
  std::string then =
      ends_with_scheduler_
          ? "this process ends, because the cluster is there for one job"
      : running_job_.empty() ? "nothing: this process goes on looking for it"
                             : "the job is stopped here, and this process "
                               "goes on looking for the scheduler";
  actions->push_back(AnnounceLoss{running_job_, options_.orphan_timeout,
                                  std::move(then), why});
}

absl::Status SessionCore::OutOfReach() const {
  return absl::UnavailableError(
      absl::StrCat("scheduler at ", options_.scheduler_address,
                   " has been out of reach for ",
                   absl::FormatDuration(options_.orphan_timeout)));
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
  if (IsKept(event)) Remember(event);
  if (state_ == State::kRegistered) {
    actions->push_back(WriteEvent{std::move(event)});
  }
}

void SessionCore::Remember(const DaemonMessage& event) {
  std::erase_if(said_, [&](const DaemonMessage& earlier) {
    return IsReplacedBy(earlier, event) || IsEndedBy(earlier, event);
  });
  if (said_.size() == kKeptMax) {
    // An evaluation so long ago has arrived; an answer is not given up for it.
    const auto report = absl::c_find_if(
        said_,
        [](const DaemonMessage& earlier) { return earlier.has_report(); });
    said_.erase(report == said_.end() ? said_.begin() : report);
  }
  said_.push_back(event);
}

}  // namespace syncline
