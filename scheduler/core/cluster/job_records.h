#ifndef SYNCLINE_SCHEDULER_CORE_CLUSTER_JOB_RECORDS_H_
#define SYNCLINE_SCHEDULER_CORE_CLUSTER_JOB_RECORDS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "scheduler/core/cluster_action.h"
#include "scheduler/core/job/job.h"

namespace syncline::scheduler {

// The jobs that the scheduler knows, queued, running and old ones, by number
// ("j-0001" is 1) and by client key. No number is given twice. Pure,
// thread-compatible.
class JobRecords {
 public:
  explicit JobRecords(Job::Options options) : options_(std::move(options)) {}

  // Never given before.
  std::string NextId();
  // The id is taken, for instance by a record that cannot be read.
  void Reserve(const std::string& job_id);
  void ReserveNumber(uint64_t number);
  // REQUIRES: no job has its id, which is reserved or came from NextId.
  void Add(StoredJob stored);

  // Null if there is none.
  Job* Find(const std::string& job_id);
  // Errors: NotFound.
  absl::StatusOr<const Job*> Get(const std::string& job_id) const;
  // By number, the oldest first; the newest first.
  std::vector<Job*> All();
  std::vector<const Job*> NewestFirst() const;

  // The job that was submitted with this key before; none: the key is empty or
  // was not seen. Errors: AlreadyExists: that was another job, with what
  // differs. `spec` has its defaults; of `files`, those that were submitted
  // with it, size and checksum are compared.
  absl::StatusOr<std::optional<std::string>> FindRepeated(
      const std::string& client_key, const JobSpec& spec,
      absl::Span<const Artifact> files) const;
  bool HasClientKey(const std::string& client_key) const {
    return by_client_key_.contains(client_key);
  }

  // `failed` has just failed. If the latest earlier run of the same work failed
  // in the same way, another try makes no sense: the job is marked so.
  void NoteRepeatedFault(Job* failed) const;
  // Deletes jobs that have been over for `keep`. The newest record stays,
  // without its files: its number must not be given again. Looks every ten
  // seconds.
  void DeleteOld(absl::Duration keep, absl::Time now, ClusterActions* actions);

 private:
  const Job::Options options_;
  std::map<uint64_t, std::unique_ptr<Job>> jobs_;  // by number
  std::map<std::string, uint64_t> by_client_key_;  // numbers
  uint64_t next_number_ = 1;
  absl::Time look_at_ = absl::InfinitePast();  // of DeleteOld
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_CLUSTER_JOB_RECORDS_H_
