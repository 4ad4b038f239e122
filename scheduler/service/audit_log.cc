#include "scheduler/service/audit_log.h"

#include <sys/stat.h>

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/json_text.h"
#include "common/base/status_macros.h"
#include "common/system/job_logs.h"
#include "common/system/log.h"

namespace syncline::scheduler {
namespace {

// Of a text from a user.
constexpr size_t kTextBytesMax = 1024;

std::string Quoted(absl::string_view text) {
  return JsonQuoted(text.substr(0, kTextBytesMax));
}

}  // namespace

std::string AuditLine(const AuditRecord& record, absl::Time time) {
  const std::string outcome =
      record.outcome.ok() ? "OK"
                          : absl::StatusCodeToString(record.outcome.code());
  std::string detail = record.detail;
  if (!record.outcome.ok()) {
    absl::StrAppend(&detail, detail.empty() ? "" : "; ",
                    record.outcome.message());
  }
  return absl::StrCat(
      "{\"time\":\"",
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone()),
      "\",\"who\":", Quoted(record.who), ",\"peer\":", Quoted(record.peer),
      ",\"action\":", Quoted(record.action), ",\"job\":", Quoted(record.job_id),
      ",\"outcome\":", Quoted(outcome), ",\"detail\":", Quoted(detail),
      record.trace_id.empty()
          ? ""
          : absl::StrCat(",\"trace\":", Quoted(record.trace_id)),
      "}\n");
}

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(
    const std::string& dir) {
  SYNCLINE_ASSIGN_OR_RETURN(auto file,
                            RotatingFile::Open(absl::StrCat(dir, "/audit.log"),
                                               kRotateBytes, kFilesKept));
  return absl::WrapUnique(new AuditLog(std::move(file)));
}

void AuditLog::Add(const AuditRecord& record, absl::Time time) {
  MutexLock lock(&mu_);
  Append(record, time);
}

void AuditLog::AddRefused(const AuditRecord& record, absl::Time time) {
  MutexLock lock(&mu_);
  TellLeftOut(time);
  if (refusals_.Takes(record.who)) Append(record, time);
}

void AuditLog::EndRefusals(absl::Time time) {
  MutexLock lock(&mu_);
  TellLeftOut(time);
}

void AuditLog::TellLeftOut(absl::Time time) {
  for (const RefusalLimit::LeftOut& caller : refusals_.TakeLeftOut(time)) {
    Append({.who = caller.who,
            .action = "refused",
            .detail = absl::StrCat(caller.calls,
                                   " more calls of it were refused within ",
                                   absl::FormatDuration(RefusalLimit::kPeriod),
                                   ", and have no line")},
           time);
  }
}

void AuditLog::Append(const AuditRecord& record, absl::Time time) {
  AuditRecord traced = record;
  if (traced.trace_id.empty()) traced.trace_id = JobTraceOf(record.job_id);
  const std::string line = AuditLine(traced, time);
  const absl::Status added = file_->Append(line);
  if (!added.ok()) {
    LogError("the audit log cannot be written")
        .Status(added)
        .Field("line", line);
  }
}

}  // namespace syncline::scheduler
