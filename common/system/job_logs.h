#ifndef SYNCLINE_COMMON_SYSTEM_JOB_LOGS_H_
#define SYNCLINE_COMMON_SYSTEM_JOB_LOGS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "common/system/log_file_reader.h"
#include "common/system/rotating_file.h"

namespace syncline {

// The log lines of one task's processes, by job: FOLDER/<job id>-<trace id>.log
// is the file of a job. The file outlives the process; a later process of the
// same task with the same folder appends to it. The name has the trace id,
// because two clusters may have jobs of the same id. Thread-safe; writes to the
// disk.
class JobLogs {
 public:
  // A job's file is rotated once, so it takes at most twice this.
  static constexpr uint64_t kRotateBytes = 4 << 20;
  // Of the folder; the logs of the jobs that were silent for longest are
  // deleted when a new one begins.
  static constexpr size_t kJobsMax = 16;

  // Makes the folder, for this user alone. Errors: those of the file system;
  // PermissionDenied: it is another user's, or a link.
  static absl::StatusOr<std::unique_ptr<JobLogs>> Open(
      const std::string& folder);

  // Adds `line`, which ends with a newline. `trace_id` may be empty. A line
  // that cannot be written is dropped, because no job should fail for its log.
  void Append(absl::string_view job_id, absl::string_view trace_id,
              absl::string_view line) ABSL_LOCKS_EXCLUDED(mu_);

  // Errors: NotFound: nothing was logged for this job; those of the file
  // system.
  absl::StatusOr<std::unique_ptr<LogFileReader>> Read(
      absl::string_view job_id, absl::string_view trace_id,
      uint64_t tail_lines) const;

  const std::string& folder() const { return folder_; }

 private:
  struct OpenFile {
    std::string name;
    std::unique_ptr<RotatingFile> file;
  };
  explicit JobLogs(std::string folder) : folder_(std::move(folder)) {}
  RotatingFile* Find(const std::string& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DeleteOld() const;

  const std::string folder_;
  Mutex mu_;
  std::list<OpenFile> open_ ABSL_GUARDED_BY(mu_);  // used last first
};

// From here on each line that is logged for this job carries trace=<trace_id>.
// The last thousand jobs are remembered. No effect if one of both is empty.
void SetJobTrace(absl::string_view job_id, absl::string_view trace_id);
// Empty: none was set.
std::string JobTraceOf(absl::string_view job_id);

// From here on lines of jobs go to `logs` too, whatever their level. Null: no
// more.
void KeepJobLogs(std::shared_ptr<JobLogs> logs);
std::shared_ptr<JobLogs> KeptJobLogs();
// All that is kept of a job, of earlier processes too; empty: nothing.
std::string KeptJobLog(absl::string_view job_id);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_JOB_LOGS_H_
