#include "common/cluster/member_link.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"

namespace syncline {

MemberLink::~MemberLink() { Leave("", absl::InfinitePast()); }

void MemberLink::Join(SchedulerSession::Options options, Callbacks callbacks) {
  callbacks_ = std::move(callbacks);
  scheduler_address_ = options.scheduler_address;
  // Held, so that the first callback finds session_.
  MutexLock lock(&mu_);
  session_ = SchedulerSession::Start(
      std::move(options),
      {.on_command = [this](const SchedulerMessage& m) { OnCommand(m); },
       .on_registered = [this](const Registered& r) { OnRegistered(r); },
       .on_lost = [this](const absl::Status& why) { OnLost(why); },
       .on_rejected = callbacks_.on_rejected});
}

void MemberLink::OnCommand(const SchedulerMessage& command) {
  if (command.has_shutdown()) {
    callbacks_.on_shutdown(command.shutdown());
    return;
  }
  if (command.has_prepare()) {
    MutexLock lock(&mu_);
    SetRunningJob(command.prepare().assignment().job_id());
  }
  callbacks_.on_command(command);
}

void MemberLink::OnRegistered(const Registered& registered) {
  {
    MutexLock lock(&mu_);
    registered_ = absl::OkStatus();
    session_secret_ = registered.session_secret();
  }
  callbacks_.on_registered(registered);
}

void MemberLink::OnLost(const absl::Status& why) {
  {
    MutexLock lock(&mu_);
    registered_ = why;
  }
  if (callbacks_.on_lost) callbacks_.on_lost();
}

void MemberLink::SetRunningJob(const std::string& job_id) {
  running_job_ = job_id;
  if (session_ != nullptr) session_->SetRunningJob(job_id);
  if (job_id.empty()) released_.SignalAll();
}

void MemberLink::Send(DaemonMessage message) {
  const bool released = message.has_done() && message.done().released();
  const std::string job_id = released ? message.done().job_id() : "";
  MutexLock lock(&mu_);
  if (session_ == nullptr) return;
  session_->Send(std::move(message));
  if (released && job_id == running_job_) SetRunningJob("");
}

void MemberLink::Leave(absl::string_view reason, absl::Time deadline) {
  std::unique_ptr<SchedulerSession> session;
  {
    MutexLock lock(&mu_);
    if (session_ != nullptr && !running_job_.empty() &&
        MonotonicNow() < deadline) {
      DaemonMessage failed;
      failed.mutable_done()->set_job_id(running_job_);
      failed.mutable_done()->set_code(
          static_cast<int>(absl::StatusCode::kAborted));
      failed.mutable_done()->set_message(std::string(reason));
      session_->Send(std::move(failed));
      while (!running_job_.empty() && MonotonicNow() < deadline) {
        released_.WaitUntil(&mu_, deadline);
      }
    }
    session = std::move(session_);
  }
  // Joins callbacks, which take mu_.
  session.reset();
}

std::string MemberLink::running_job() const {
  MutexLock lock(&mu_);
  return running_job_;
}

std::string MemberLink::session_secret() const {
  MutexLock lock(&mu_);
  return session_secret_;
}

absl::Status MemberLink::Ready() const {
  MutexLock lock(&mu_);
  if (registered_.ok()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("not registered with the scheduler at ", scheduler_address_,
                   ": ", registered_.message()));
}

}  // namespace syncline
