#ifndef SYNCLINE_SCHEDULER_SERVICE_SCHEDULER_H_
#define SYNCLINE_SCHEDULER_SERVICE_SCHEDULER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/daemon/http_server.h"
#include "common/daemon/metrics.h"
#include "grpcpp/server_builder.h"
#include "proto/job.pb.h"
#include "scheduler/service/address_confirmer.h"

namespace syncline::scheduler {

// Membership, the job queue, and the two services. Thread-safe.
class Scheduler {
 public:
  struct Options {
    // RocksDB with the jobs, and their files. Created if absent; one scheduler
    // at a time (a second is refused by the lock).
    std::string state_dir;
    absl::Duration lease = absl::Seconds(5);
    absl::Duration grow_pause = absl::Minutes(2);
    absl::Duration heartbeat = absl::Seconds(1);
    // A job whose members have not prepared by then fails.
    absl::Duration prepare_timeout = absl::Minutes(10);
    // Results and logs of a finished job are deleted after this.
    absl::Duration keep = absl::Hours(24 * 7);
    uint64_t model_bytes_max = 8ull << 30;
    uint32_t queue_max = 1000;
    // Jobs wait a while for an evaluator that has not come yet.
    bool expects_evaluator = false;
    // Of tenants (TenantQuotas), read again when it changes; empty: none.
    std::string quota_file = {};
    // The jobs of tenant T may name folders below tenant_checkpoints/T for
    // their checkpoints; empty: none.
    std::string tenant_checkpoints = {};
    // The cluster ends with its one job (--job), and with this scheduler.
    bool single_job = false;
    // Streams that do not register and uploads that stall end after this.
    absl::Duration idle_limit = absl::Seconds(30);
    MetricsRegistry* metrics = nullptr;  // outlives the scheduler; may be null
    // Asks members whether they are at their addresses; null: over gRPC.
    std::shared_ptr<AddressConfirmer> confirmer;
    // A newer scheduler has taken the state; this one writes and sends nothing
    // any more. Called once, must not block; may be null.
    std::function<void(const absl::Status& why)> on_superseded = nullptr;
  };
  // Reads the state; a job that was running goes on with its members, one whose
  // record cannot be read is left out, logged and counted. Errors:
  // Unavailable (locked, naming the directory), DataLoss, PermissionDenied,
  // FailedPrecondition (a newer scheduler has the state).
  static absl::StatusOr<std::unique_ptr<Scheduler>> Create(
      const Options& options);
  virtual ~Scheduler() = default;  // joins

  virtual void RegisterServices(grpc::ServerBuilder* builder) = 0;
  // The address that GetCluster names, and that of the page /metrics of this
  // process (empty: it has none), once they are known.
  virtual void SetAddress(const std::string& address,
                          const std::string& http_address) = 0;
  // OK: jobs can be taken, kept and run. Errors, for people: Unavailable: it is
  // stopping, or its loop does not turn; ResourceExhausted: the disk of the
  // state is full; others: it is gone, or records could not be written.
  virtual absl::Status Ready() const = 0;
  // Pages for the HTTP server, as StatusPages has them.
  virtual HttpServer::Pages Pages() = 0;

  struct Submission {
    std::string job_id;
    bool repeated = false;  // SubmitResponse's
  };
  // For --job: queues a job from memory, with the file of start.weights (empty:
  // none); same checks and errors as Submit.
  virtual absl::StatusOr<Submission> Submit(
      const JobSpec& spec, absl::string_view model,
      const std::string& client_key, const std::string& weights_file) = 0;
  // Blocks until the job is final or `deadline`; its status then. Errors:
  // NotFound; Unavailable: the scheduler is stopping; DeadlineExceeded: it did
  // not get to say a status by then.
  virtual absl::StatusOr<JobStatus> WaitFor(const std::string& job_id,
                                            absl::Time deadline) = 0;
  // The folder with a job's files, on this machine.
  virtual std::string FilesOf(const std::string& job_id) const = 0;
  // Tells every daemon to exit with `exit_code`, those too that come later, and
  // waits until at least `members` were told and all have gone, or `deadline`.
  virtual void ShutdownCluster(int exit_code, absl::string_view reason,
                               int members, absl::Time deadline) = 0;
  // Ends streams and watches; refuses new calls.
  virtual void Drain(absl::Time deadline) = 0;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_SCHEDULER_H_
