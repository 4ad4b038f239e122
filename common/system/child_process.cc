#include "common/system/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {  // glibc 2.36 forgot to say so itself
#include <sys/pidfd.h>
}

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"

namespace syncline {
namespace {

std::vector<std::string> EnvironmentWith(const ChildProcess::Options& options) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const auto replaced = [&](const auto& change) {
      return absl::StartsWith(*entry, absl::StrCat(change.first, "="));
    };
    if (std::none_of(options.environment.begin(), options.environment.end(),
                     replaced)) {
      environment.push_back(*entry);
    }
  }
  for (const auto& [key, value] : options.environment) {
    if (value.has_value())
      environment.push_back(absl::StrCat(key, "=", *value));
  }
  return environment;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

// A child starts with no signal blocked or ignored, whatever its parent does.
void SetAttributes(posix_spawnattr_t* attributes) {
  sigset_t none;
  sigemptyset(&none);
  sigset_t all;
  sigfillset(&all);
  posix_spawnattr_init(attributes);
  posix_spawnattr_setsigmask(attributes, &none);
  posix_spawnattr_setsigdefault(attributes, &all);
  posix_spawnattr_setpgroup(attributes, 0);
  posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK |
                                           POSIX_SPAWN_SETSIGDEF |
                                           POSIX_SPAWN_SETPGROUP);
}

void AddFileActions(posix_spawn_file_actions_t* actions,
                    const ChildProcess::Options& options) {
  const auto append = [&](int fd, const std::string& file) {
    posix_spawn_file_actions_addopen(actions, fd, file.c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0644);
  };
  posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY,
                                   0);
  if (!options.output_file.empty()) {
    append(STDOUT_FILENO, options.output_file);
    posix_spawn_file_actions_adddup2(actions, STDOUT_FILENO, STDERR_FILENO);
  }
  if (!options.error_file.empty()) append(STDERR_FILENO, options.error_file);
  if (!options.working_dir.empty()) {
    posix_spawn_file_actions_addchdir_np(actions, options.working_dir.c_str());
  }
}

}  // namespace

std::string ChildExit::ToString() const {
  return signal != 0 ? absl::StrCat("killed by signal ", signal)
                     : absl::StrCat("exited with code ", code);
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Spawn(
    const Options& options) {
  std::vector<std::string> arguments = options.argv;
  std::vector<std::string> environment = EnvironmentWith(options);
  posix_spawnattr_t attributes;
  SetAttributes(&attributes);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  AddFileActions(&actions, options);

  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, arguments[0].c_str(), &actions, &attributes,
                  Pointers(arguments).data(), Pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return absl::ErrnoToStatus(error, absl::StrCat("starting ", arguments[0]));
  }
  const int pidfd = pidfd_open(pid, 0);
  if (pidfd < 0) {
    const int pidfd_error = errno;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return absl::ErrnoToStatus(pidfd_error,
                               absl::StrCat("watching ", arguments[0]));
  }
  return std::unique_ptr<ChildProcess>(
      new ChildProcess(pid, pidfd, options.output_file));
}

ChildProcess::~ChildProcess() {
  Signal(SIGKILL);
  WaitUntil(absl::InfiniteFuture());
  close(pidfd_);
}

void ChildProcess::Signal(int signal) {
  if (!exit_.has_value()) kill(pid_, signal);
}

std::optional<ChildExit> ChildProcess::WaitUntil(absl::Time deadline) {
  while (!exit_.has_value()) {
    const absl::Duration left = std::clamp(
        deadline - MonotonicNow(), absl::ZeroDuration(), absl::Hours(1));
    pollfd ended = {.fd = pidfd_, .events = POLLIN, .revents = 0};
    // Rounded up: a wait of half a millisecond must not spin.
    const int ready = poll(&ended, 1,
                           static_cast<int>(absl::ToInt64Milliseconds(
                               absl::Ceil(left, absl::Milliseconds(1)))));
    int status = 0;
    if (ready > 0 && waitpid(pid_, &status, WNOHANG) == pid_) {
      exit_ = WIFSIGNALED(status) ? ChildExit{.signal = WTERMSIG(status)}
                                  : ChildExit{.code = WEXITSTATUS(status)};
    } else if (MonotonicNow() >= deadline) {
      return std::nullopt;
    }
  }
  return exit_;
}

void StopAll(const std::vector<ChildProcess*>& children, absl::Time deadline) {
  for (ChildProcess* child : children) child->Signal(SIGTERM);
  for (ChildProcess* child : children) {
    if (child->WaitUntil(deadline).has_value()) continue;
    child->Signal(SIGKILL);
    child->WaitUntil(absl::InfiniteFuture());
  }
}

}  // namespace syncline
