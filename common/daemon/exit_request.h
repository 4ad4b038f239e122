#ifndef SYNCLINE_COMMON_DAEMON_EXIT_REQUEST_H_
#define SYNCLINE_COMMON_DAEMON_EXIT_REQUEST_H_

#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"

namespace syncline {

// The reason why a process ends. Exactly one of `signal` and `exit_code`
// counts.
struct ExitReason {
  int signal = 0;  // SIGTERM or SIGINT; 0: asked for with an exit code
  int exit_code = 0;
  std::string text;  // "SIGTERM", "the job has ended" ...
};

// Makes a daemon's main thread wait for a signal, or for a call of Request from
// any thread; the first one counts. Blocks SIGTERM and SIGINT for its life in
// the threads that are created after it: create it before all threads. At most
// one exists at a time.
class ExitRequest {
 public:
  ExitRequest();
  ~ExitRequest();
  ExitRequest(const ExitRequest&) = delete;
  ExitRequest& operator=(const ExitRequest&) = delete;

  // Thread-safe; does not block.
  void Request(int exit_code, absl::string_view text) ABSL_LOCKS_EXCLUDED(mu_);

  // Waits for as long as it takes; from the main thread. From then on a second
  // signal ends the process at once, as without this class.
  ExitReason Await() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  std::optional<ExitReason> Requested() const ABSL_LOCKS_EXCLUDED(mu_);
  std::optional<ExitReason> Signalled() const;

  int signal_fd_ = -1;
  int request_fd_ = -1;
  mutable Mutex mu_;
  std::optional<ExitReason> request_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_DAEMON_EXIT_REQUEST_H_
