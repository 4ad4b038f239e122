#include "common/daemon/exit_request.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>

#include "common/base/check.h"

namespace syncline {
namespace {

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

ExitRequest::ExitRequest() {
  const sigset_t set = StopSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal_fd_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  request_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  // At the start of a process there are descriptors.
  SYNCLINE_CHECK(signal_fd_ >= 0 && request_fd_ >= 0);
}

ExitRequest::~ExitRequest() {
  close(signal_fd_);
  close(request_fd_);
  const sigset_t set = StopSignals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void ExitRequest::Request(int exit_code, absl::string_view text) {
  {
    MutexLock lock(&mu_);
    if (request_.has_value()) return;
    request_ = ExitReason{0, exit_code, std::string(text)};
  }
  const uint64_t one = 1;
  // The write can only fail when request_fd_ is readable already.
  [[maybe_unused]] const ssize_t written =
      write(request_fd_, &one, sizeof(one));
}

std::optional<ExitReason> ExitRequest::Requested() const {
  MutexLock lock(&mu_);
  return request_;
}

std::optional<ExitReason> ExitRequest::Signalled() const {
  signalfd_siginfo info;
  if (read(signal_fd_, &info, sizeof(info)) != sizeof(info)) {
    return std::nullopt;
  }
  const int signal = static_cast<int>(info.ssi_signo);
  return ExitReason{signal, 0, signal == SIGTERM ? "SIGTERM" : "SIGINT"};
}

ExitReason ExitRequest::Await() {
  std::optional<ExitReason> reason;
  while (!reason.has_value()) {
    pollfd fds[] = {{signal_fd_, POLLIN, 0}, {request_fd_, POLLIN, 0}};
    constexpr int kWaitMs = 60'000;
    poll(fds, 2, kWaitMs);
    reason = Requested();
    if (!reason.has_value()) reason = Signalled();
  }
  const sigset_t set = StopSignals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  return *reason;
}

}  // namespace syncline
