#ifndef SYNCLINE_SERVER_SERVICE_PS_SERVER_H_
#define SYNCLINE_SERVER_SERVICE_PS_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/daemon/metrics.h"
#include "common/system/memory_claim.h"
#include "grpcpp/server_builder.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "server/shard/shard_start.h"

namespace syncline {
class ShardStateSink;
}  // namespace syncline

namespace syncline::ps {

struct ShardSelection;
class SnapshotTaker;

// One ps: the shards of the jobs it takes part in, as the jobs' routings give
// them to it. Thread-safe.
class PsServer {
 public:
  struct Options {
    int lanes = 0;  // 0: one per core
    // Bytes of requests and responses held at a time; above it calls are
    // answered ResourceExhausted.
    uint64_t in_flight_bytes = 1ull << 30;
    // For the rows of embedding tables of all jobs, in memory and on disk.
    uint64_t table_memory_bytes = 1ull << 30;
    // Of jobs whose checkpoints name no folder; each gets one below it. Empty:
    // such jobs are refused.
    std::string checkpoint_dir = {};
    // How long a push or a lane may wait for the disk of a checkpoint before
    // that is given up; at most a third of the job's step timeout.
    absl::Duration checkpoint_wait_max = absl::Seconds(20);
    uint64_t table_disk_bytes = 0;  // 0: rows stay in memory
    std::string spill_dir = {};     // where; needed with table_disk_bytes
    // Payloads of workers on this host may be in memory of theirs that this
    // process maps, of at most so many bytes.
    bool shared_memory = true;
    uint64_t shared_memory_bytes = 16ull << 30;
    std::string boot_id = {};            // of this host; empty: the system's
    MetricsRegistry* metrics = nullptr;  // outlives the server; may be null
    // Another ps of a job has been out of reach for some seconds and still is;
    // again every other second. On any thread; must not block. May be null.
    std::function<void(PeerUnreachable)> on_unreachable = nullptr;
    // Gives the taker of a shard's state at checkpoint and routing cuts, for
    // jobs without JobSpec.checkpoint; asked when a shard opens. Null, here or
    // as its answer: such cuts are refused.
    std::function<std::shared_ptr<SnapshotTaker>(const std::string& job_id)>
        snapshot_taker = nullptr;
  };
  static absl::StatusOr<std::unique_ptr<PsServer>> Create(
      const Options& options);
  virtual ~PsServer() = default;  // closes all jobs, joins

  // Adds the ParameterServer service; the server outlives the gRPC server.
  virtual void RegisterService(grpc::ServerBuilder* builder) = 0;

  // Opens the shards that a job has on the ps of rank `ps_rank`. Errors:
  // AlreadyExists, InvalidArgument (spec, block map, no folder for
  // checkpoints), ResourceExhausted (memory, or disk for tables), Unavailable
  // (the folder for checkpoints cannot be written to); those of `go_on`, which
  // is asked every 64 MiB or sooner while memory is taken. After an error the
  // job is not open.
  virtual absl::Status OpenJob(const JobAssignment& assignment,
                               uint32_t ps_rank, const GoOnCheck& go_on) = 0;
  absl::Status OpenJob(const JobAssignment& assignment, uint32_t ps_rank) {
    return OpenJob(assignment, ps_rank, nullptr);
  }
  // OpenJob of shards that begin with states, as JobShard::Import. Errors:
  // those of both, and of `starts`.
  virtual absl::Status RestoreJob(const JobAssignment& assignment,
                                  uint32_t ps_rank, const ShardStarts& starts,
                                  const GoOnCheck& go_on) = 0;
  // Puts the job's shards of a later routing into the place of those that it
  // has here, which must be exported at the cut `cut_id` and held there until
  // now: `starts` brings what all former shards had of each new one. Callers by
  // the former routing are told the version of the new one, those by the new
  // one wait meanwhile. No memory is taken twice. All ps of the job must go to
  // the routing; ps that join the job open theirs with RestoreJob, before the
  // others.
  // Errors: FailedPrecondition: the job is not open, or at this routing or a
  // later one, or a shard is not held at the cut (any more), or shard 0, which
  // reduces the batches' statistics, would go to another ps: nothing has
  // changed then. RestoreJob's, and FailedPrecondition if a hold ends while the
  // shards are closed: the job is closed here then, and its state is what was
  // exported.
  virtual absl::Status ChangeRouting(const JobAssignment& assignment,
                                     uint32_t ps_rank, uint64_t cut_id,
                                     const ShardStarts& starts,
                                     const GoOnCheck& go_on) = 0;
  // Writes the state of a shard at a held cut, as JobShard::Export; this
  // thread waits until it is written. Errors: FailedPrecondition: the job is
  // not open here, or this shard not; those of JobShard::Export.
  virtual absl::Status ExportState(const std::string& job_id, uint32_t shard,
                                   uint64_t cut_id,
                                   const ShardSelection& selection,
                                   ShardStateSink* sink) = 0;
  // The other workers of the job go on without this one. In SYNC shard 0 is
  // here, and there is no answer; with leased data it is what the shards here
  // have of the worker. Errors: FailedPrecondition: another attempt is open
  // here, or none; shard 0 is elsewhere; the job waits for all its workers;
  // QuorumArbiter::OnRemoved's, JobShard::LoseWorker's.
  virtual absl::StatusOr<std::optional<WorkerTakenOut>> TakeWorkerOut(
      const RemoveWorker& command) = 0;
  // JobShard::ReturnLeases of all shards here. Errors: its; FailedPrecondition:
  // another attempt is open here, or none.
  virtual absl::Status ReturnClocks(const ReturnLeases& command) = 0;
  // Cancels parked calls, waits for the lanes, frees the memory. Idempotent.
  // Returns the job's last PsReport; nothing if it has none, or at a second
  // call.
  virtual std::optional<PsReport> CloseJob(const std::string& job_id,
                                           absl::string_view reason) = 0;
  // One for each open job that has tables, as their shards last looked at them,
  // or whose non_finite policy is not FAIL_JOB, or whose shard 0 is here and
  // has clocks of SYNC or its kin.
  virtual std::vector<PsReport> Reports() const = 0;
  // Refuses new calls with Unavailable and ends the parked ones by `deadline`.
  virtual void Drain(absl::Time deadline) = 0;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SERVICE_PS_SERVER_H_
