#ifndef SYNCLINE_SCHEDULER_SERVICE_STATE_STORE_H_
#define SYNCLINE_SCHEDULER_SERVICE_STATE_STORE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/core/job/job.h"

namespace syncline::scheduler {

// The jobs on disk: a scheduler that was killed starts again with them. Hides
// RocksDB (only state_store.cc includes it). Thread-safe.
//
//   meta/format         "1"
//   job/<id>            JobStatus
//   parameters/<id>     JobAssignment, of which only parameters and tables are
//                       set
//   client_key/<id>     SubmitBegin.client_key; absent: none was given
//
// After a write that failed, as on a full disk, the next ones open the database
// again as soon as there is room.
class StateStore {
 public:
  struct Loaded {
    std::vector<StoredJob> jobs;  // by key
    // Jobs whose records cannot be read, and why; they stay as they are.
    struct Unreadable {
      std::string job_id;
      absl::Status why;
    };
    std::vector<Unreadable> unreadable;
    // Jobs that have files and no record; their ids are not given again. Filled
    // in by Scheduler::Create.
    std::vector<std::string> without_record;
  };
  // Creates `directory` if it is absent. Errors: Unavailable: another scheduler
  // has it open; DataLoss: corrupt, or of an unknown format;
  // PermissionDenied. Each names the directory.
  static absl::StatusOr<std::unique_ptr<StateStore>> Open(
      const std::string& directory);
  virtual ~StateStore() = default;

  // All jobs. Errors: DataLoss: the database itself is damaged.
  virtual absl::StatusOr<Loaded> Load() const = 0;

  // On disk when it returns. All of the job is stored or nothing.
  virtual absl::Status PutNew(const StoredJob& job) = 0;
  // `durable`: on disk when it returns; else soon, or with the next one that
  // is.
  virtual absl::Status Put(const JobStatus& status, bool durable) = 0;
  // Forgets the job; on disk when it returns.
  virtual absl::Status Delete(const std::string& job_id) = 0;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_STATE_STORE_H_
