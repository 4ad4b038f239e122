#ifndef SYNCLINE_SCHEDULER_SERVICE_STATE_STORE_H_
#define SYNCLINE_SCHEDULER_SERVICE_STATE_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core/job/job.h"

namespace syncline::scheduler {

// The jobs on disk: a scheduler that was killed starts again with them. Hides
// RocksDB (only state_store.cc includes it). Thread-safe.
//
//   meta/format         "1"
//   meta/epoch          Registered.scheduler_epoch of the last scheduler, in
//                       decimal digits; absent: none had one
//   meta/skipped_job    the largest number of a job id that is not given again
//                       (restored_state.h), in decimal digits; absent: 0
//   job/<id>            JobStatus
//   parameters/<id>     JobAssignment, of which only parameters and tables are
//                       set
//   client_key/<id>     SubmitBegin.client_key; absent: none was given
//   event/<id>/<number> JobEvent; the number has 12 digits
//   use/<type>/<index>  SetMemberUseRequest; absent: the task is used as any
//                       other. <type> is TaskType's number
//   attempt/<id>        AttemptRecord of a job that is prepared or runs; it has
//                       secrets, so `directory` is its owner's alone
//
// After a write that failed, as on a full disk, the next ones open the database
// again as soon as there is room.
class StateStore {
 public:
  struct Loaded {
    std::vector<StoredJob> jobs;  // by key
    std::vector<SetMemberUseRequest> uses;
    // Jobs whose records cannot be read, and why; they stay as they are.
    struct Unreadable {
      std::string job_id;
      absl::Status why;
    };
    std::vector<Unreadable> unreadable;
    // Jobs that have files and no record, and the last id that a restored state
    // skips; these ids are not given again. Filled in by Scheduler::Create.
    std::vector<std::string> without_record;
  };
  // Creates `directory` if it is absent. Errors: Unavailable: another scheduler
  // has it open; DataLoss: corrupt, or of an unknown format;
  // PermissionDenied. Each names the directory.
  static absl::StatusOr<std::unique_ptr<StateStore>> Open(
      const std::string& directory);
  // The same, of a state that is only looked at: nothing is written or locked.
  // Errors: NotFound: there is none.
  static absl::StatusOr<std::unique_ptr<StateStore>> OpenToRead(
      const std::string& directory);
  virtual ~StateStore() = default;

  // Of the last scheduler on this state; 0: none had one. Errors: DataLoss.
  virtual absl::StatusOr<uint64_t> Epoch() const { return 0; }
  // On disk when it returns.
  virtual absl::Status PutEpoch(uint64_t) { return absl::OkStatus(); }

  // Numbers of job ids up to this one are not given again, though no record
  // says so. Errors: DataLoss.
  virtual absl::StatusOr<uint64_t> SkippedJobNumber() const { return 0; }
  // On disk when it returns.
  virtual absl::Status PutSkippedJobNumber(uint64_t) {
    return absl::OkStatus();
  }

  // Copies the database as it is now to `folder`, which it creates. Large files
  // are linked, so that takes moments on the same file system.
  virtual absl::Status CopyTo(const std::string& folder) {
    return absl::UnimplementedError(folder);
  }

  // All jobs. Errors: DataLoss: the database itself is damaged.
  virtual absl::StatusOr<Loaded> Load() const = 0;

  // On disk when it returns. All of the job is stored or nothing.
  virtual absl::Status PutNew(const StoredJob& job) = 0;
  // `durable`: on disk when it returns; else soon, or with the next one that
  // is.
  virtual absl::Status Put(const JobRecord& job, bool durable) = 0;
  // The use that was set for a member; on disk when it returns. SCHEDULE is
  // forgotten.
  virtual absl::Status PutUse(const SetMemberUseRequest& use) = 0;
  // An event of the job; on disk soon. `left_out`: the number of one that is
  // forgotten; 0: none.
  virtual absl::Status PutEvent(const std::string& job_id,
                                const StoredEvent& event,
                                uint64_t left_out) = 0;
  // Forgets the job; on disk when it returns.
  virtual absl::Status Delete(const std::string& job_id) = 0;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_STATE_STORE_H_
