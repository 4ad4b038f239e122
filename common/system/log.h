#ifndef SYNCLINE_COMMON_SYSTEM_LOG_H_
#define SYNCLINE_COMMON_SYSTEM_LOG_H_

// One event per line, key=value:
//
//   ts=2026-11-21T08:30:00.123Z level=info role=ps node=ps:1 incarnation=9f..
//       job=j-0001 msg="shard opened" blocks=12
//
// Usage:  LogInfo("shard opened").Job(id).Field("blocks", n);
// The line is written when the temporary dies. Info is a state change, Warning
// is degraded and counted, Error needs an operator. Nothing per request.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace syncline {

enum class LogLevel { kInfo = 0, kWarning = 1, kError = 2 };

struct LogOptions {
  std::string role;  // "ps"
  std::string node;  // "ps:1"; may be set later by SetLogMember
  uint64_t incarnation = 0;
  LogLevel min_level = LogLevel::kInfo;
  // Empty: standard error. Else appended to, and rotated to FILE.1, FILE.2 ...
  std::string file;
  uint64_t rotate_bytes = 64 << 20;
  int files_kept = 5;  // FILE included
};

// Sets where lines go; called once from main before any thread starts. Without
// it lines go to standard error. Errors: the file cannot be opened.
absl::Status InitLog(const LogOptions& options);
// The name and incarnation the scheduler knows this process by.
void SetLogMember(absl::string_view node, uint64_t incarnation);

// One line under construction. Single thread; lines of different threads do not
// mix.
class LogLine {
 public:
  LogLine(LogLevel level, absl::string_view message);
  ~LogLine();
  LogLine(const LogLine&) = delete;
  LogLine& operator=(const LogLine&) = delete;

  LogLine& Job(absl::string_view job_id) {
    job_ = std::string(job_id);
    return *this;
  }
  LogLine& Status(const absl::Status& status) {
    return Text("code", absl::StatusCodeToString(status.code()))
        .Text("error", status.message());
  }
  template <typename T>
  LogLine& Field(absl::string_view key, const T& value) {
    return Text(key, absl::StrCat(value));
  }

 private:
  // Quotes and escapes where needed.
  LogLine& Text(absl::string_view key, absl::string_view value);
  const LogLevel level_;
  std::string job_;
  std::string line_;  // from the message on
};

class LogInfo : public LogLine {
 public:
  explicit LogInfo(absl::string_view message)
      : LogLine(LogLevel::kInfo, message) {}
};
class LogWarning : public LogLine {
 public:
  explicit LogWarning(absl::string_view message)
      : LogLine(LogLevel::kWarning, message) {}
};
class LogError : public LogLine {
 public:
  explicit LogError(absl::string_view message)
      : LogLine(LogLevel::kError, message) {}
};

// Collects the lines of one job for its log artifact, besides the process log:
// while one exists, lines with .Job(job_id) are appended to it whatever their
// level, up to max_bytes (then a last line says so). Thread-safe.
class JobLogCapture {
 public:
  explicit JobLogCapture(absl::string_view job_id, size_t max_bytes = 4 << 20);
  ~JobLogCapture();
  JobLogCapture(const JobLogCapture&) = delete;
  JobLogCapture& operator=(const JobLogCapture&) = delete;
  std::string text() const;

  struct Buffer;  // the log's

 private:
  const std::unique_ptr<Buffer> buffer_;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_LOG_H_
