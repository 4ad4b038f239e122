#ifndef SYNCLINE_SERVER_SHARD_JOB_REGISTRY_H_
#define SYNCLINE_SERVER_SHARD_JOB_REGISTRY_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/update/pending_statistics.h"
#include "server/shard/job_shard.h"
#include "server/shard/norm_all_reduce.h"

namespace syncline::ps {

// One open job.
struct JobEntry {
  JobConfig config;
  std::shared_ptr<JobShard> shard;  // null: the map gives this ps no block
  std::shared_ptr<NormAllReduce> norms;
  // Null: the job reduces no statistics, or another ps does.
  std::shared_ptr<PendingStatistics> statistics;
};

// The jobs open on this ps. Thread-safe.
class JobRegistry {
 public:
  // Errors: AlreadyExists; Unavailable: draining.
  absl::Status CheckNew(const std::string& job_id) const;
  absl::Status Add(std::shared_ptr<const JobEntry> job);  // the same errors
  // Null: not open.
  std::shared_ptr<const JobEntry> Remove(const std::string& job_id);

  // Errors: FailedPrecondition: not open, or no block of it is here;
  // Unavailable: draining.
  absl::StatusOr<std::shared_ptr<const JobEntry>> Find(
      const std::string& job_id) const;
  // The same for a call of another shard. Errors: also those of CheckPass.
  absl::StatusOr<std::shared_ptr<const JobEntry>> Find(
      const FoldNormRequest& request) const;
  // The same for a call of a worker or the evaluator. Errors: also those of
  // CheckPass; Aborted: other routing version; InvalidArgument: the job has no
  // such rank; FailedPrecondition: the caller is not the process that has this
  // rank.
  absl::StatusOr<std::shared_ptr<const JobEntry>> Find(
      const Caller& caller) const;

  std::vector<std::shared_ptr<const JobEntry>> All() const;
  // True if this job is still open; another job of the same name does not
  // count.
  bool Has(const JobEntry& job) const;
  // From now on every call is refused.
  void StartDraining();

 private:
  absl::Status CheckNewLocked(const std::string& job_id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  std::map<std::string, std::shared_ptr<const JobEntry>> jobs_
      ABSL_GUARDED_BY(mu_);
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SHARD_JOB_REGISTRY_H_
