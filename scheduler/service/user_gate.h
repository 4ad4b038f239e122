#ifndef SYNCLINE_SCHEDULER_SERVICE_USER_GATE_H_
#define SYNCLINE_SCHEDULER_SERVICE_USER_GATE_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/rpc/user_calls.h"
#include "common/system/periodic_task.h"
#include "grpcpp/support/server_interceptor.h"

namespace syncline::scheduler {

// The id in a request in place of a job that its caller does not see. No job
// has such an id, and no method takes it for "all".
inline constexpr char kNoJob[] = "(no job)";

// Gives access to the job that a request of Jobs names; null: it names none.
// The requests are those of the method that gRPC names `path`.
using JobIdOf = std::string* (*)(void* request);
JobIdOf FindJobIdOf(absl::string_view path);
// Makes of such a request one that holds nothing, but kNoJob where it names a
// job: what a caller without a token sends takes no memory once it is refused.
// Null: the gate does not check the method.
using EmptyRequest = void (*)(void* request);
EmptyRequest FindEmptyRequest(absl::string_view path);
// Whether the gate checks the tokens of calls of the method `path`. Those of
// other methods are checked before: CheckUserBeforeRequest.
bool GateChecksTokens(absl::string_view path);

// Stands before the handlers of Jobs. It checks the token of a call and, where
// the request names a job, whether the token's bearer sees that job. A refused
// request reaches its handler empty, with kNoJob as its job if it names one;
// else IsRefused says so. The handler does nothing then, and the caller is told
// the reason. A job that the caller does not see is refused in the words for a
// job that does not exist. A stream is cut off within two of kLookPeriod when
// its caller's token is revoked, expires, or loses the role or the tenant that
// the stream needs. Thread-safe.
class UserGate {
 public:
  static constexpr absl::Duration kLookPeriod = absl::Seconds(2);

  // The tenant of a job; none: there is no such job.
  using TenantOf =
      std::function<std::optional<std::string>(const std::string& job_id)>;
  // Told of a call that was refused here.
  using OnRefused = std::function<void(
      const grpc::ServerContextBase& call, absl::string_view path,
      const std::string& job_id, const absl::Status& why)>;
  UserGate(TenantOf tenant_of, OnRefused on_refused);

  // It outlives the server that it is for, and this outlives it.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
  MakeInterceptors();

  // OK: the bearer of the token in `metadata` sees the job. Errors: NotFound;
  // those of ScopeOf.
  absl::Status Check(const CallMetadata& metadata,
                     const std::string& job_id) const;

  // Streams that are open; for one call each, of the method `path`.
  uint64_t AddStream(grpc::ServerContextBase* call, absl::string_view path)
      ABSL_LOCKS_EXCLUDED(mu_);
  // The job that the stream is about.
  void SetJob(uint64_t number, const std::string& job_id)
      ABSL_LOCKS_EXCLUDED(mu_);
  void RemoveStream(uint64_t number) ABSL_LOCKS_EXCLUDED(mu_);
  void TellRefused(const grpc::ServerContextBase& call, absl::string_view path,
                   const std::string& job_id, const absl::Status& why) const;

  // Calls that were refused although they name no job, until they end.
  void AddRefused(const grpc::ServerContextBase* call) ABSL_LOCKS_EXCLUDED(mu_);
  void RemoveRefused(const grpc::ServerContextBase* call)
      ABSL_LOCKS_EXCLUDED(mu_);
  // For the handlers of methods whose requests name no job.
  bool IsRefused(const grpc::ServerContextBase& call) const
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Stream {
    grpc::ServerContextBase* call = nullptr;
    std::string path;
    std::string job_id = {};  // empty: it names none
    bool doubted = false;     // was found without a good token at the last look
  };
  // The answer of Check to a caller that sees `scope`.
  absl::Status CheckScope(const absl::StatusOr<JobScope>& scope,
                          const std::string& job_id) const;
  void Look() ABSL_LOCKS_EXCLUDED(mu_);

  const TenantOf tenant_of_;
  const OnRefused on_refused_;
  mutable Mutex mu_;
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<uint64_t, Stream> streams_ ABSL_GUARDED_BY(mu_);
  std::set<const grpc::ServerContextBase*> refused_ ABSL_GUARDED_BY(mu_);
  std::optional<PeriodicTask> looking_;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_USER_GATE_H_
