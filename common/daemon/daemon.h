#ifndef SYNCLINE_COMMON_DAEMON_DAEMON_H_
#define SYNCLINE_COMMON_DAEMON_DAEMON_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/cluster/identity_service.h"
#include "common/cluster/member_link.h"
#include "common/cluster/member_logs_service.h"
#include "common/daemon/daemon_options.h"
#include "common/daemon/exit_request.h"
#include "common/daemon/http_server.h"
#include "common/daemon/metrics.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_timers.h"
#include "common/system/locked_folder.h"
#include "common/system/periodic_task.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/server_builder.h"

namespace syncline {

class OidcTokens;
class UserTokens;

// The part that the three daemons share: log, metrics, the gRPC server with
// gRPC's health service, the HTTP server, membership, and the end. A main.cc
// calls, in this order:
//
//   create roles, RegisterService(daemon->builder()), daemon->AddMember()
//   daemon->Listen()           the port is known, calls come in
//   daemon->Join(...)          per member: the scheduler knows it
//   daemon->AwaitExit()        until a signal, or the scheduler's word
//   daemon->Leave()            the scheduler stops the job here
//   drain roles by drain_deadline()
//   daemon->StopServing()      before a role with a service is destroyed
//
// Used from the main thread; RequestExit from any.
class Daemon {
 public:
  // Opens the log and starts to take signals. Errors: the log cannot be opened.
  static absl::StatusOr<std::unique_ptr<Daemon>> Create(
      const DaemonOptions& options);
  ~Daemon();

  MetricsRegistry* metrics() { return &metrics_; }
  grpc::ServerBuilder* builder() { return &builder_; }
  // For files of this process: a folder of its own in WorkRoot(), created, and
  // removed at the end. The folders of killed processes there are removed too.
  absl::StatusOr<std::string> WorkDir();
  // --work-dir, or the folder for temporary files. For files that outlive the
  // process.
  std::string WorkRoot() const;

  // A role that the scheduler is to know. Owned by the daemon; before Listen.
  MemberLink* AddMember();

  // Adds a condition of /readyz besides membership, for as long as HTTP is
  // served. An error of `ready` is the reason why this process is not ready.
  // `ready` must not block for long and is called from any thread. gRPC's
  // health service follows membership alone. Before Listen.
  void AddReadiness(std::function<absl::Status()> ready);

  // Starts gRPC, then HTTP with `pages` besides the usual ones; writes the port
  // file. `services` are those whose health is that of the whole process.
  // Errors: an address cannot be bound; the port file cannot be written.
  absl::Status Listen(std::vector<std::string> services,
                      HttpServer::Pages pages = {});
  // As others reach it; after Listen.
  const std::string& address() const { return address_; }
  // Of the HTTP server, as others reach it: where it listens everywhere, at the
  // host of address(). Empty: there is none.
  std::string http_address() const;
  // Where to find the scheduler; over loopback if it is this process.
  const std::string& scheduler_address() const { return scheduler_address_; }

  // The GPU that members other than ps compute on. Before Join.
  void SetGpu(Gpu gpu) { gpu_ = std::move(gpu); }

  // Registers a member. `incarnation` is unique to it.
  void Join(MemberLink* link, const TaskId& task, bool auto_index,
            uint64_t incarnation,
            std::function<void(const SchedulerMessage&)> on_command);

  // Says what is wrong where a person looks, and in the log; for what does not
  // end the process at once.
  void Report(const absl::Status& failure) const;

  // The first reason counts. Thread-safe.
  void RequestExit(int exit_code, absl::string_view reason) {
    exit_request_.Request(exit_code, reason);
  }
  // Blocks until the process is to end; then drain_deadline() is set, and some
  // time after it the process ends by itself. Returns the exit code: the one
  // asked for, or for a signal 0 if no member worked for a job and `busy` is
  // false, else 128 + signal.
  int AwaitExit(const std::function<bool()>& busy = nullptr);
  absl::Time drain_deadline() const { return drain_deadline_; }
  // `cut_off` is called if the process does not end in time; it may start the
  // program anew. If it returns, the process ends. Called on a thread of its
  // own, while others run. REQUIRES: before AwaitExit.
  void SetCutOff(std::function<void()> cut_off) {
    cut_off_ = std::move(cut_off);
  }
  // Why the process ends, for people; after AwaitExit.
  const std::string& exit_text() const { return exit_text_; }

  // All members leave. Idempotent.
  void Leave();
  // Ends HTTP, then gRPC: running calls are cancelled at drain_deadline().
  // Idempotent.
  void StopServing();

 private:
  explicit Daemon(const DaemonOptions& options);
  absl::Status OpenLog();
  void LogStart() const;
  absl::Status StartHttp(HttpServer::Pages pages);
  // OK while all members are in the cluster and the end has not begun.
  absl::Status Joined() const;
  // Joined(), and what AddReadiness asks.
  absl::Status Ready() const;
  // Sets the process's TLS, if its options ask for it.
  absl::Status SecureTransport();
  // Adds the gauge of the files that SecureTransport has opened, those that are
  // not null.
  void WatchFiles(std::shared_ptr<UserTokens> tokens,
                  std::shared_ptr<OidcTokens> oidc);
  // Looks when the certificate ends.
  void ReadCertificateExpiry();
  // Tells gRPC's health service whether this process has Joined().
  void UpdateHealth() ABSL_LOCKS_EXCLUDED(health_mu_);
  Member MakeMember(const TaskId& task, uint64_t incarnation) const;
  // Keeps what is logged for jobs, from here on, where later processes of this
  // task find it.
  void KeepLogs(const std::string& task_name) const;

  const DaemonOptions options_;
  ExitRequest exit_request_;  // before any thread
  MetricsRegistry metrics_;
  const std::unique_ptr<MetricsRegistry::Collecting> process_metrics_;
  std::unique_ptr<MetricsRegistry::Collecting> file_metrics_;
  grpc::ServerBuilder builder_;
  // gRPC starts no server without a service of the caller's, and a worker has
  // none. This one refuses every call that no other service takes.
  grpc::CallbackGenericService unknown_calls_;
  IdentityService identity_;
  MemberLogsService member_logs_{&identity_};
  ListeningServer listening_;
  std::optional<GrpcTimerWaker> timers_;  // while there is a server
  std::string address_;
  std::string scheduler_address_;
  std::unique_ptr<LockedFolder> work_folder_;
  std::string logs_root_;  // const after the first Join; empty: not kept
  std::optional<Gpu> gpu_;
  std::vector<std::string> services_;
  std::vector<std::unique_ptr<MemberLink>> members_;      // const after Listen
  std::vector<std::function<absl::Status()>> readiness_;  // likewise
  std::atomic<bool> draining_ = false;
  Mutex health_mu_;  // guards the statuses of the health service
  std::unique_ptr<HttpServer> http_;
  // When the log was last told of a certificate that ends soon; for
  // certificate_watch_.
  absl::Time certificate_told_ = absl::InfinitePast();
  std::unique_ptr<PeriodicTask> certificate_watch_;  // with TLS
  absl::Time drain_deadline_ = absl::InfinitePast();
  std::function<void()> cut_off_;  // may be null
  std::string exit_text_;
  std::unique_ptr<PeriodicTask> watchdog_;
};

// A daemon's main(): reads flags and TF_CONFIG, prints what there is to print,
// runs `run` and returns the exit code. An error of `run` is printed as one
// message; the code is 1 then. `validate` is what --validate-only checks beyond
// flags and TF_CONFIG; may be null.
int DaemonMain(
    DaemonKind kind, int argc, char** argv,
    const std::function<absl::StatusOr<int>(const DaemonOptions&, Daemon*)>&
        run,
    const std::function<absl::Status(const DaemonOptions&)>& validate =
        nullptr);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_DAEMON_DAEMON_H_
