#ifndef SYNCLINE_SCHEDULER_SERVICE_LOG_RELAY_H_
#define SYNCLINE_SCHEDULER_SERVICE_LOG_RELAY_H_

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/system/thread_pool.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "proto/scheduler.pb.h"
#include "scheduler/service/file_stream.h"

namespace syncline::scheduler {

// The threads of Jobs.Logs and of the page's logs. Each call has a thread. It
// reads from the job's members, writes to the user, and holds a piece of 64 KiB
// of each member. A user who reads slowly delays that thread alone; the call of
// a user who reads nothing for five minutes is ended. Thread-safe.
class LogRelays {
 public:
  static constexpr int kCallsMax = 8;
  static constexpr int kCallsOfOneMax = 4;  // of one caller
  static constexpr int kPagesMax = 4;       // besides kCallsMax

  // Callers, besides those of LimitNameOf: a page; a caller without a name.
  static constexpr char kPage[] = "(page)";
  static constexpr char kNobody[] = "unknown";

  LogRelays() : threads_("scheduler-logs", kCallsMax + kPagesMax) {}
  // Ends the calls within moments, and joins. Idempotent.
  void Stop() {
    stopping_ = true;
    threads_.Stop();
  }
  bool stopping() const { return stopping_; }

  // Runs `relay` on a thread of its own, for `caller`: LimitNameOf's, so that
  // the bearers of one tenant share their calls, or kPage. Errors:
  // ResourceExhausted: kCallsMax, kCallsOfOneMax or kPagesMax calls run
  // already; Unavailable: stopping.
  absl::Status Start(const std::string& caller, std::function<void()> relay)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Status Enter(const std::string& caller) ABSL_LOCKS_EXCLUDED(mu_);
  void Leave(const std::string& caller) ABSL_LOCKS_EXCLUDED(mu_);

  std::atomic<bool> stopping_{false};
  Mutex mu_;
  int calls_ ABSL_GUARDED_BY(mu_) = 0;
  int pages_ ABSL_GUARDED_BY(mu_) = 0;
  // Of callers with a name.
  std::map<std::string, int> calls_of_ ABSL_GUARDED_BY(mu_);
  ThreadPool threads_;  // last: its threads use the rest
};

// Answers Jobs.Logs; proto/scheduler.proto has the contract. The scheduler
// writes a line of its own in place of the lines of a member that cannot be
// reached; the lines of the other members go on. `on_end` is called once, with
// the outcome, before the user learns it.
grpc::ServerWriteReactor<LogLines>* RelayLogs(
    const ServiceContext& context, const LogsRequest& request,
    grpc::CallbackServerContext* call,
    std::function<void(const absl::Status&)> on_end);

// The last lines of each task, with request.tail_lines, a few hundred at most;
// blocks for some seconds at most, without the stack that gRPC needs. Of a task
// that has not answered by then there are those that have come. Errors: as
// Jobs.Logs; ResourceExhausted: too many users read logs.
absl::StatusOr<std::vector<LogLines>> ReadLogTails(
    const ServiceContext& context, const LogsRequest& request);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_LOG_RELAY_H_
