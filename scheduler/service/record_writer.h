#ifndef SYNCLINE_SCHEDULER_SERVICE_RECORD_WRITER_H_
#define SYNCLINE_SCHEDULER_SERVICE_RECORD_WRITER_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "scheduler/core/cluster/cluster_core.h"
#include "scheduler/core/cluster_action.h"
#include "scheduler/service/metrics.h"
#include "scheduler/service/state_store.h"

namespace syncline::scheduler {

// Writes the records of jobs. Where the disk refuses a write or a deletion, as
// a full one does, the job goes on, and each tick tries again. Failures are
// counted, and logged every half minute.
//
// Calls come from one thread, that of the control loop, and block on the disk.
// Check() is thread-safe.
class RecordWriter {
 public:
  // Both outlive it.
  RecordWriter(StateStore* state, SchedulerMetrics* metrics)
      : state_(state), metrics_(metrics) {}

  // The record of a new job. After an error it is not there, or is deleted at a
  // later tick: a write that failed may still have reached the disk.
  absl::Status WriteNew(const StoredJob& job, absl::Time now);
  // `durable`: on disk when it returns, unless the disk refuses it.
  void Write(const JobRecord& job, bool durable, absl::Time now);
  // Of ClusterCore::epoch(); one that is refused is written at a later tick.
  void WriteEpoch(uint64_t epoch, absl::Time now);
  // The use that was set for a member; it counts only once it is on disk.
  absl::Status WriteUse(const SetMemberUseRequest& use) {
    return state_->PutUse(use);
  }
  // Something that has happened to a job. Where the disk refuses it the job's
  // events are written again by a later Retry.
  void WriteEvent(const AppendEvent& event, absl::Time now);
  // The record of an old job. One that is left is read by the scheduler's next
  // start, which deletes it again.
  void DeleteOld(const std::string& job_id, absl::Time now);

  // Repeats the writes and deletions that were refused. `find` returns a job's
  // record as it is now; one that is not there any more is not written.
  void Retry(
      absl::FunctionRef<absl::StatusOr<JobRecord>(const std::string&)> find,
      absl::Time now);
  // The same for events; `find` returns all that a job has.
  void RetryEvents(absl::FunctionRef<absl::StatusOr<ClusterCore::EventList>(
                       const std::string&)>
                       find,
                   absl::Time now);
  // True if the disk has refused the job's newest record.
  bool IsUnwritten(const std::string& job_id) const {
    return unwritten_.contains(job_id);
  }

  // Why the newest records are not on disk; OK if they are. Thread-safe.
  absl::Status Check() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Revoke(const std::string& job_id, absl::Time now);
  void SetTrouble(const absl::Status& trouble) ABSL_LOCKS_EXCLUDED(mu_);
  void LogFailure(const std::string& job_id, const absl::Status& why,
                  absl::Time now);

  StateStore* const state_;
  SchedulerMetrics* const metrics_;
  std::set<std::string> unwritten_;         // jobs
  std::set<std::string> unwritten_events_;  // of jobs
  std::set<std::string> revoked_;  // jobs whose records are to be deleted
  uint64_t unwritten_epoch_ = 0;   // 0: none
  uint64_t failures_ = 0;          // since the last that was logged
  absl::Time log_at_ = absl::InfinitePast();

  mutable Mutex mu_;
  absl::Status trouble_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_RECORD_WRITER_H_
