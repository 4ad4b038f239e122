#ifndef SYNCLINE_COMMON_CLUSTER_SESSION_CORE_H_
#define SYNCLINE_COMMON_CLUSTER_SESSION_CORE_H_

#include <cstdint>
#include <deque>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/random.h"
#include "proto/scheduler.pb.h"

namespace syncline {

// The actions that the shell of a session must take, in order.
struct OpenStream {};   // and write the Register that follows
struct CloseStream {};  // its end is reported by OnStreamEnded
struct WriteEvent {
  DaemonMessage event;
};
struct DeliverCommand {
  SchedulerMessage command;
};
struct DeliverRegistered {
  Registered registered;
};
// The session is over. Unavailable: a later attempt may succeed.
struct DeliverRejected {
  absl::Status status;
};
// An established session is lost, and has not come back within moments, as it
// does where a connection is only renewed. The shell logs it.
struct AnnounceLoss {
  std::string job_id;  // orphaned; empty: none
  absl::Duration wait;
  std::string then;  // what happens if the scheduler is not back by then
  absl::Status why;
};
// A scheduler has answered that a newer one has replaced; it is ignored. The
// shell logs it.
struct IgnoreOlder {
  uint64_t epoch = 0;
  uint64_t newest = 0;
};
using SessionAction =
    std::variant<OpenStream, CloseStream, WriteEvent, DeliverCommand,
                 DeliverRegistered, DeliverRejected, AnnounceLoss, IgnoreOlder>;
using SessionActions = std::vector<SessionAction>;

// Decides for a daemon's session with the scheduler: when to connect, what to
// say, when to give up. Pure: events and `now` in, actions appended to
// *actions. Thread-compatible.
class SessionCore {
 public:
  struct Options {
    std::string scheduler_address;  // for messages
    Member self;
    bool auto_index = false;
    absl::Duration connect_timeout = absl::Minutes(5);
    absl::Duration task_taken_timeout = absl::Seconds(8);
    // How long a scheduler that is out of reach is waited for; the job goes on
    // meanwhile.
    absl::Duration orphan_timeout = absl::Minutes(10);
    // The same where the cluster ends with its scheduler.
    absl::Duration one_job_orphan_timeout = absl::Seconds(60);
    // A stream on which Register was not answered by then is given up.
    absl::Duration answer_timeout = absl::Seconds(10);
    uint64_t seed = 1;  // of the backoff's jitter
  };
  explicit SessionCore(Options options);

  void Start(absl::Time now, SessionActions* actions);
  void OnMessage(const SchedulerMessage& message, absl::Time now,
                 SessionActions* actions);
  // The stream that was opened last is gone; `why` is the scheduler's answer or
  // the connection's.
  void OnStreamEnded(const absl::Status& why, absl::Time now,
                     SessionActions* actions);
  // At least a few times per second.
  void OnTick(absl::Time now, SessionActions* actions);
  void Send(DaemonMessage event, SessionActions* actions);
  // Named when registering again, with how far it is, until it is another one:
  // also after it was stopped as an orphan, for stopping takes its time.
  void SetRunningJob(std::string job_id);

  bool registered() const { return state_ == State::kRegistered; }
  bool closed() const { return state_ == State::kClosed; }

 private:
  enum class State { kIdle, kConnecting, kRegistered, kWaiting, kClosed };

  void Connect(absl::Time now, SessionActions* actions);
  void OnRegistered(const Registered& registered, absl::Time now,
                    SessionActions* actions);
  void Reject(absl::Status status, SessionActions* actions);
  // Handles a refused registration; false if the refusal may pass.
  bool RefusedForGood(const absl::Status& why, absl::Time now);
  bool HasGivenUp(absl::Time now) const;
  void Announce(SessionActions* actions);
  // Notes what `message`, which this process was sent or sends, says of its
  // job.
  void NotePrepare(const JobAssignment& assignment);
  void NoteEvent(const DaemonMessage& event);
  absl::Duration OrphanTimeout() const {
    return ends_with_scheduler_ ? options_.one_job_orphan_timeout
                                : options_.orphan_timeout;
  }
  void Remember(const DaemonMessage& event);
  void OnOrphanTimeout(SessionActions* actions);
  absl::Status OutOfReach() const;

  const Options options_;
  Task task_;  // as accepted, once it was
  // Ask for any index: the accepted one has gone to another process.
  bool any_index_;
  State state_ = State::kIdle;
  Random random_;
  int failed_attempts_ = 0;
  std::string running_job_;
  HeldJob held_;  // how far this process is in it
  // Register's fields of the same names: the largest seen.
  uint64_t scheduler_epoch_ = 0;
  uint32_t attempt_ = 0;
  uint64_t job_number_ = 0;
  bool answered_by_older_ = false;  // Register was, by a smaller epoch
  bool ends_with_scheduler_ = false;
  bool told_to_end_ = false;  // by Shutdown
  // The job was stopped as the orphan timeout asks for.
  bool orphan_stopped_ = false;
  // Events of the running or last job that the scheduler must receive, in
  // order. They are sent again after each registration, because events that
  // were sent on a broken stream may not have arrived.
  std::deque<DaemonMessage> said_;
  absl::Status last_error_;
  bool ever_registered_ = false;
  absl::Time connect_by_ = absl::InfiniteFuture();
  absl::Time answer_by_ = absl::InfiniteFuture();
  absl::Time retry_at_ = absl::InfiniteFuture();
  absl::Time heartbeat_at_ = absl::InfiniteFuture();
  absl::Time taken_since_ = absl::InfiniteFuture();
  absl::Time lost_since_ = absl::InfiniteFuture();
  absl::Time announce_at_ = absl::InfiniteFuture();
  absl::Status lost_why_;
  absl::Duration heartbeat_ = absl::Seconds(1);
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_CLUSTER_SESSION_CORE_H_
