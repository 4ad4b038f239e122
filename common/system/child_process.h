#ifndef SYNCLINE_COMMON_SYSTEM_CHILD_PROCESS_H_
#define SYNCLINE_COMMON_SYSTEM_CHILD_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace syncline {

// How a process ended.
struct ChildExit {
  int code = 0;                  // its exit code, or
  int signal = 0;                // the signal that killed it; 0: it exited
  std::string ToString() const;  // "exited with code 1", "killed by signal 9"
};

// A child process, spawned (never forked) in a process group of its own, so
// that a terminal's Ctrl-C reaches only the parent. Killed and reaped when the
// object dies. Thread-compatible.
class ChildProcess {
 public:
  struct Options {
    // argv[0] is the path of the executable.
    std::vector<std::string> argv;
    // Inherited, with these set, and those with no value removed.
    std::vector<std::pair<std::string, std::optional<std::string>>> environment;
    // Standard output and error are appended to it. Empty: both inherited.
    std::string output_file;
    // Where standard error goes instead. Empty: with the output.
    std::string error_file;
    // Empty: the parent's.
    std::string working_dir;
  };
  // Errors: NotFound, PermissionDenied and others by errno, naming argv[0].
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Spawn(
      const Options& options);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  const std::string& output_file() const { return output_file_; }
  // Nothing happens if it has ended.
  void Signal(int signal);
  // How it ended; empty: it still runs.
  std::optional<ChildExit> Poll() { return WaitUntil(absl::InfinitePast()); }
  std::optional<ChildExit> WaitUntil(absl::Time deadline);

 private:
  ChildProcess(pid_t pid, int pidfd, std::string output_file)
      : pid_(pid), pidfd_(pidfd), output_file_(std::move(output_file)) {}

  const pid_t pid_;
  const int pidfd_;
  const std::string output_file_;
  std::optional<ChildExit> exit_;
};

// Ends all of them: SIGTERM, then SIGKILL to what is left at `deadline`.
void StopAll(const std::vector<ChildProcess*>& children, absl::Time deadline);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_CHILD_PROCESS_H_
