#ifndef SYNCLINE_COMMON_CLUSTER_MEMBER_LINK_H_
#define SYNCLINE_COMMON_CLUSTER_MEMBER_LINK_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/cluster/scheduler_session.h"
#include "proto/scheduler.pb.h"

namespace syncline {

// One role's membership in the cluster: its session with the scheduler, and
// whether it works for a job. Thread-safe.
//
// Commands come on the session's thread in order. Any thread sends events by
// Send. Before Join and after Leave no command comes and Send does nothing: the
// role may be created after this object and destroyed before it.
class MemberLink {
 public:
  struct Callbacks {
    // Prepare, run and stop commands. Must not block for long.
    std::function<void(const SchedulerMessage&)> on_command;
    std::function<void(const Registered&)> on_registered;
    // The session is lost, and with it Ready(); it may come back.
    std::function<void()> on_lost;
    // The scheduler ends this process.
    std::function<void(const Shutdown&)> on_shutdown;
    // Registration was refused for good.
    std::function<void(const absl::Status&)> on_rejected;
  };

  MemberLink() = default;
  ~MemberLink();

  // Opens the session; once.
  void Join(SchedulerSession::Options options, Callbacks callbacks)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Sends a message of the role. Never blocks.
  void Send(DaemonMessage message) ABSL_LOCKS_EXCLUDED(mu_);

  // If a job runs: tells the scheduler that it fails here (Aborted, `reason`),
  // and waits, up to `deadline`, until it has stopped the job here. Then closes
  // the session. Idempotent.
  void Leave(absl::string_view reason, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_);

  // The job that this member works for; empty: none.
  std::string running_job() const ABSL_LOCKS_EXCLUDED(mu_);
  // Registered.session_secret of the stream that there was last; empty before.
  std::string session_secret() const ABSL_LOCKS_EXCLUDED(mu_);
  // OK while there is a session. Errors: Unavailable: not registered yet, or
  // the session is lost, with the reason.
  absl::Status Ready() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void OnCommand(const SchedulerMessage& command) ABSL_LOCKS_EXCLUDED(mu_);
  void OnRegistered(const Registered& registered) ABSL_LOCKS_EXCLUDED(mu_);
  void OnLost(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  void SetRunningJob(const std::string& job_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Callbacks callbacks_;  // const after Join
  std::string scheduler_address_;

  mutable Mutex mu_;
  CondVar released_;
  std::unique_ptr<SchedulerSession> session_ ABSL_GUARDED_BY(mu_);
  // OK: registered.
  absl::Status registered_ ABSL_GUARDED_BY(mu_) =
      absl::UnavailableError("not yet");
  std::string running_job_ ABSL_GUARDED_BY(mu_);
  std::string session_secret_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_CLUSTER_MEMBER_LINK_H_
