#ifndef SYNCLINE_SERVER_SHARD_JOB_REGISTRY_H_
#define SYNCLINE_SERVER_SHARD_JOB_REGISTRY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "common/update/pending_statistics.h"
#include "proto/quorum.pb.h"
#include "server/shard/job_access.h"
#include "server/shard/job_shard.h"
#include "server/shard/norm_all_reduce.h"
#include "server/shard/quorum_agreement.h"

namespace syncline::ps {

class ShardCheckpoints;
class ShardTransfer;

// One shard of an open job.
struct JobEntry {
  JobConfig config;
  std::shared_ptr<JobShard> shard;  // null: the routing gives it no block
  std::shared_ptr<NormAllReduce> norms;
  // Null: the job's mode waits for all workers. Closed by the shard.
  std::shared_ptr<QuorumAgreement> quorum;
  // Null: the job reduces no statistics, or another shard does.
  std::shared_ptr<PendingStatistics> statistics;
  // Null: the job makes no checkpoints. Closed after the shard.
  std::shared_ptr<ShardCheckpoints> checkpoints;
  // Null where `shard` is.
  std::shared_ptr<ShardTransfer> transfer;
};

// The jobs open on this ps, with the shards that each has here. Thread-safe.
class JobRegistry {
 public:
  using Shards = std::vector<std::shared_ptr<const JobEntry>>;

  // Errors: AlreadyExists; Unavailable: draining.
  absl::Status CheckNew(const std::string& job_id) const;
  // `shards`: of this job, each once; may be none. Errors: the same.
  absl::Status Add(std::shared_ptr<const JobAccess> access, Shards shards);
  // None: not open. Where `reason` is that the job's scheduler is away
  // (IsOfOrphanedJob), calls that come later are told so.
  std::optional<Shards> Remove(const std::string& job_id,
                               absl::string_view reason = "");
  // The same of the opening that has this very access. None also if the job was
  // closed and opened again since.
  std::optional<Shards> Remove(const JobAccess& access);

  // Takes the job's shards out, because it goes to the later routing of
  // `access`. Until EndRouting calls that come by that routing are answered
  // Unavailable. Errors: FailedPrecondition: the job is not open, or not of
  // this attempt, or at this routing or a later one; Unavailable: draining.
  absl::StatusOr<Shards> BeginRouting(std::shared_ptr<const JobAccess> access);
  // Puts in the shards that the job has by this routing. Errors:
  // FailedPrecondition: the job is open no more; Unavailable: draining.
  absl::Status EndRouting(const JobAccess& access, Shards shards);

  // Errors: FailedPrecondition: not open, or no block of the shard is here;
  // Unavailable: draining, or between BeginRouting and EndRouting.
  absl::StatusOr<std::shared_ptr<const JobEntry>> Find(
      const std::string& job_id, uint32_t shard) const;
  // Where another shard sends its norms. Errors: also those of CheckPass and
  // CheckRouting.
  absl::StatusOr<std::shared_ptr<const JobEntry>> Find(
      const FoldNormRequest& request) const;
  // Where another shard says which workers have closed a clock. Errors: the
  // same.
  absl::StatusOr<std::shared_ptr<const JobEntry>> Find(
      const FixClockRequest& request) const;
  // The shard that a worker or the evaluator calls. Errors: also those of
  // JobAccess.
  absl::StatusOr<std::shared_ptr<const JobEntry>> Find(
      const Caller& caller) const;
  // The job of a caller, at whatever routing. Errors: FailedPrecondition: not
  // open; Unavailable: draining, or between BeginRouting and EndRouting;
  // JobAccess::CheckCaller's.
  absl::StatusOr<std::shared_ptr<const JobAccess>> FindAccess(
      const Caller& caller) const;

  // The shards of all jobs; those of one job are neighbours.
  Shards All() const;
  std::vector<std::string> JobIds() const;
  // Those of one. Errors: FailedPrecondition: not open; Unavailable: draining.
  absl::StatusOr<Shards> AllOf(const std::string& job_id) const;
  // True if this shard is still open; one of another job of the same name does
  // not count.
  bool Has(const JobEntry& shard) const;
  // From now on every call is refused.
  void StartDraining();

 private:
  struct OpenJob {
    std::shared_ptr<const JobAccess> access;
    bool opening = false;  // between BeginRouting and EndRouting
    std::map<uint32_t, std::shared_ptr<const JobEntry>> shards;  // by number
  };

  absl::Status CheckNewLocked(const std::string& job_id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<const OpenJob*> JobOf(const std::string& job_id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Unavailable between BeginRouting and EndRouting.
  static absl::Status CheckOpened(const OpenJob& job);
  // The shard 0 that another shard calls.
  template <typename Request>
  absl::StatusOr<std::shared_ptr<const JobEntry>> FindRoot(
      const Request& request) const ABSL_LOCKS_EXCLUDED(mu_);
  static absl::StatusOr<std::shared_ptr<const JobEntry>> ShardOf(
      const OpenJob& job, uint32_t shard);
  static Shards ShardsOf(const OpenJob& job);

  mutable Mutex mu_;
  std::map<std::string, OpenJob> jobs_ ABSL_GUARDED_BY(mu_);
  // Why the last orphaned jobs were closed, by id; of none that is open.
  std::map<std::string, std::string> orphaned_ ABSL_GUARDED_BY(mu_);
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SHARD_JOB_REGISTRY_H_
