#ifndef SYNCLINE_SCHEDULER_SERVICE_AUDIT_LOG_H_
#define SYNCLINE_SCHEDULER_SERVICE_AUDIT_LOG_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/system/rotating_file.h"
#include "scheduler/service/refusal_limit.h"

namespace syncline::scheduler {

// One act of a user, or one that was refused.
struct AuditRecord {
  std::string who = {};     // as CallerOf
  std::string peer = {};    // address; empty: not known
  std::string action = {};  // "submit"
  std::string job_id = {};  // empty: none
  absl::Status outcome = {};
  std::string detail = {};  // a reason, a name
  // Of the job; empty: as the log knows it (JobTraceOf), which may be not.
  std::string trace_id = {};
};

// The log of who did what to which job: DIR/audit.log, one JSON object a line:
//
//   {"time":"2026-11-24T19:00:00.123Z","who":"token:alice","peer":"ipv4:...",
//    "action":"cancel","job":"j-0001","trace":"4bf92f35...","outcome":"OK",
//    "detail":"a typo"}
//
// Appended only. At kRotateBytes it becomes audit.log.1, and so on, up to
// kFilesKept files. A line is handed to the kernel before the caller has its
// answer, so it outlives the process; it is not synced to the disk, so a power
// cut may take the last seconds. Thread-safe.
class AuditLog {
 public:
  static constexpr uint64_t kRotateBytes = 16 << 20;
  static constexpr int kFilesKept = 16;

  // Errors: RotatingFile's.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(const std::string& dir);

  // `time` by the wall clock. A line that cannot be written is logged.
  void Add(const AuditRecord& record, absl::Time time) ABSL_LOCKS_EXCLUDED(mu_);
  // A call that was refused for want of a role, a token, or a job that its
  // caller sees: as Add, within RefusalLimit. How many calls of a caller were
  // left out is a line of its own, before the next one of this kind, or by
  // EndRefusals.
  void AddRefused(const AuditRecord& record, absl::Time time)
      ABSL_LOCKS_EXCLUDED(mu_);
  void EndRefusals(absl::Time time) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  explicit AuditLog(std::unique_ptr<RotatingFile> file)
      : file_(std::move(file)) {}

  void Append(const AuditRecord& record, absl::Time time)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TellLeftOut(absl::Time time) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  RefusalLimit refusals_ ABSL_GUARDED_BY(mu_);
  const std::unique_ptr<RotatingFile> file_ ABSL_PT_GUARDED_BY(mu_);
};

// The line, with its end.
std::string AuditLine(const AuditRecord& record, absl::Time time);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_AUDIT_LOG_H_
