#ifndef SYNCLINE_COMMON_CLUSTER_MEMBER_LOGS_SERVICE_H_
#define SYNCLINE_COMMON_CLUSTER_MEMBER_LOGS_SERVICE_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/cluster/identity_service.h"
#include "common/system/log_file_reader.h"
#include "common/system/periodic_task.h"
#include "proto/scheduler.grpc.pb.h"

namespace syncline {

// The call's metadata that names the job's trace id: jobs of another cluster
// may have the same job id.
inline constexpr char kTraceMetadata[] = "syncline-trace";

// Serves the log lines of a job that this process, and earlier processes of its
// task, have written (KeptJobLogs in common/system/job_logs.h).
// proto/scheduler.proto has the contract. Thread-safe.
//
// One thread opens and reads the files, for at most kReadersMax calls. A call
// has one piece of 64 KiB in memory; the next piece is read when gRPC has taken
// that one. A call whose peer takes nothing for `stall_limit` is ended. Threads
// that write log lines never wait for a call.
class MemberLogsService final : public MemberLogs::CallbackService {
 public:
  static constexpr size_t kReadersMax = 16;

  // `identity` says who this process is; it outlives this object.
  explicit MemberLogsService(const IdentityService* identity,
                             absl::Duration stall_limit = absl::Minutes(5));
  // After the server's end.
  ~MemberLogsService() override;

  // Ends all calls and refuses new ones: the process ends. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  grpc::ServerWriteReactor<LogLines>* Read(
      grpc::CallbackServerContext* call,
      const MemberLogRequest* request) override;

 private:
  class Reader;

  // One look at all calls: files are read, and pieces handed to gRPC.
  void Serve() ABSL_LOCKS_EXCLUDED(mu_);
  void ServeSoon() ABSL_LOCKS_EXCLUDED(mu_);
  // Opens the file of a call. The thread that reads runs it, because it may
  // take long.
  using Opener =
      std::function<absl::StatusOr<std::unique_ptr<LogFileReader>>()>;
  absl::StatusOr<Opener> MakeOpener(const grpc::CallbackServerContext& call,
                                    const MemberLogRequest& request) const;

  const IdentityService* const identity_;
  const absl::Duration stall_limit_;
  Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::weak_ptr<Reader>> readers_ ABSL_GUARDED_BY(mu_);
  // Since the first call.
  std::optional<PeriodicTask> pump_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_CLUSTER_MEMBER_LOGS_SERVICE_H_
