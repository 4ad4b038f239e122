#include "common/system/log.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/incarnation.h"
#include "common/base/mutex.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/system/job_logs.h"
#include "common/system/rotating_file.h"

namespace syncline {

struct JobLogCapture::Buffer {
  std::string job_id;
  size_t bytes_max = 0;
  std::string text;  // guarded by the log's mutex
  bool full = false;
};

namespace {

constexpr absl::string_view kLevelNames[] = {"info", "warning", "error"};
// Of jobs; about 100 bytes each. A scheduler that has taken more has forgotten
// the first ones, which may still run.
constexpr size_t kTracesMax = 100'000;

// Where lines go. One per process: log lines have no other way to find it.
class Log {
 public:
  static Log& Get() {
    static Log* const log = new Log;  // never destroyed: threads may log late
    return *log;
  }

  absl::Status Init(const LogOptions& options) {
    std::unique_ptr<RotatingFile> file;
    if (!options.file.empty()) {
      SYNCLINE_ASSIGN_OR_RETURN(
          file, RotatingFile::Open(options.file, options.rotate_bytes,
                                   options.files_kept));
    }
    MutexLock lock(&mu_);
    file_ = std::move(file);
    min_level_ = options.min_level;
    role_ = options.role;
    node_ = options.node;
    incarnation_ = options.incarnation;
    return absl::OkStatus();
  }

  void SetMember(absl::string_view node, uint64_t incarnation) {
    MutexLock lock(&mu_);
    node_ = std::string(node);
    incarnation_ = incarnation;
  }

  void Write(LogLevel level, absl::string_view job, absl::string_view rest) {
    MutexLock lock(&mu_);
    const std::string line = absl::StrCat(Prefix(level, job), rest, "\n");
    if (!job.empty()) {
      Capture(job, line);
      if (job_logs_ != nullptr) job_logs_->Append(job, TraceOf(job), line);
    }
    if (level < min_level_) return;
    // A log that cannot be written must not end the process; standard error is
    // the last resort, and nothing is left to do where that fails too.
    if (file_ != nullptr && file_->Append(line).ok()) return;
    std::fwrite(line.data(), 1, line.size(), stderr);
  }

  void SetTrace(absl::string_view job, absl::string_view trace) {
    MutexLock lock(&mu_);
    if (traces_.insert_or_assign(std::string(job), std::string(trace)).second) {
      traced_.push_back(std::string(job));
    }
    if (traced_.size() <= kTracesMax) return;
    traces_.erase(traced_.front());
    traced_.pop_front();
  }
  std::string GetTrace(absl::string_view job) {
    MutexLock lock(&mu_);
    return std::string(TraceOf(job));
  }

  void SetJobLogs(std::shared_ptr<JobLogs> logs) {
    MutexLock lock(&mu_);
    job_logs_.swap(logs);
  }
  std::shared_ptr<JobLogs> GetJobLogs() {
    MutexLock lock(&mu_);
    return job_logs_;
  }

  void AddCapture(JobLogCapture::Buffer* buffer) {
    MutexLock lock(&mu_);
    captures_.push_back(buffer);
  }
  void RemoveCapture(JobLogCapture::Buffer* buffer) {
    MutexLock lock(&mu_);
    captures_.erase(std::find(captures_.begin(), captures_.end(), buffer));
  }
  std::string CapturedText(const JobLogCapture::Buffer& buffer) {
    MutexLock lock(&mu_);
    return buffer.text;
  }

 private:
  std::string Prefix(LogLevel level, absl::string_view job) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::string prefix =
        absl::StrCat("ts=",
                     absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(),
                                      absl::UTCTimeZone()),
                     " level=", kLevelNames[static_cast<int>(level)]);
    if (!role_.empty()) absl::StrAppend(&prefix, " role=", role_);
    if (!node_.empty()) absl::StrAppend(&prefix, " node=", node_);
    if (incarnation_ != 0) {
      absl::StrAppend(&prefix, " incarnation=", IncarnationText(incarnation_));
    }
    if (!job.empty()) absl::StrAppend(&prefix, " job=", job);
    if (const absl::string_view trace = TraceOf(job); !trace.empty()) {
      absl::StrAppend(&prefix, " trace=", trace);
    }
    return prefix;
  }

  // Empty: none.
  absl::string_view TraceOf(absl::string_view job) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto found = job.empty() ? traces_.end() : traces_.find(job);
    return found == traces_.end() ? absl::string_view() : found->second;
  }

  void Capture(absl::string_view job, absl::string_view line)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (JobLogCapture::Buffer* buffer : captures_) {
      if (buffer->job_id != job || buffer->full) continue;
      buffer->full = buffer->text.size() + line.size() > buffer->bytes_max;
      absl::StrAppend(&buffer->text, buffer->full
                                         ? "msg=\"log of this job is full; the "
                                           "daemon's own log goes on\"\n"
                                         : line);
    }
  }

  Mutex mu_;
  std::unique_ptr<RotatingFile> file_ ABSL_GUARDED_BY(mu_);
  LogLevel min_level_ ABSL_GUARDED_BY(mu_) = LogLevel::kInfo;
  std::string role_ ABSL_GUARDED_BY(mu_);
  std::string node_ ABSL_GUARDED_BY(mu_);
  uint64_t incarnation_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<JobLogCapture::Buffer*> captures_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, std::string> traces_
      ABSL_GUARDED_BY(mu_);                              // by job
  std::deque<std::string> traced_ ABSL_GUARDED_BY(mu_);  // jobs, oldest first
  std::shared_ptr<JobLogs> job_logs_ ABSL_GUARDED_BY(mu_);
};

bool NeedsQuotes(absl::string_view value) {
  return value.empty() ||
         std::any_of(value.begin(), value.end(), [](unsigned char c) {
           return c <= ' ' || c == '"' || c == '=' || c == '\\' || c >= 0x7f;
         });
}

// A line must stay one line whatever a peer or a file put into a value, and
// steer no terminal.
std::string Quoted(absl::string_view value) {
  std::string out = "\"";
  while (!value.empty()) {
    const FrontCharacter next = FrontOf(value);
    if (next.code == '"' || next.code == '\\') {
      absl::StrAppend(&out, "\\", value.substr(0, 1));
    } else if (next.code == '\n') {
      out.append("\\n");
    } else if (next.escaped && next.bytes > 1) {
      absl::StrAppendFormat(&out, "\\u%04x", next.code);
    } else if (next.escaped || next.code < ' ') {
      absl::StrAppendFormat(&out, "\\x%02x", next.code);
    } else {
      absl::StrAppend(&out, value.substr(0, next.bytes));
    }
    value.remove_prefix(next.bytes);
  }
  out.push_back('"');
  return out;
}

}  // namespace

absl::Status InitLog(const LogOptions& options) {
  return Log::Get().Init(options);
}

void SetLogMember(absl::string_view node, uint64_t incarnation) {
  Log::Get().SetMember(node, incarnation);
}

void SetJobTrace(absl::string_view job_id, absl::string_view trace_id) {
  if (!job_id.empty() && !trace_id.empty())
    Log::Get().SetTrace(job_id, trace_id);
}

std::string JobTraceOf(absl::string_view job_id) {
  return Log::Get().GetTrace(job_id);
}

void KeepJobLogs(std::shared_ptr<JobLogs> logs) {
  Log::Get().SetJobLogs(std::move(logs));
}

std::shared_ptr<JobLogs> KeptJobLogs() { return Log::Get().GetJobLogs(); }

LogLine::LogLine(LogLevel level, absl::string_view message) : level_(level) {
  absl::StrAppend(&line_, " msg=", Quoted(message));
}

LogLine::~LogLine() { Log::Get().Write(level_, job_, line_); }

LogLine& LogLine::Text(absl::string_view key, absl::string_view value) {
  absl::StrAppend(&line_, " ", key, "=");
  if (NeedsQuotes(value)) {
    line_.append(Quoted(value));
  } else {
    absl::StrAppend(&line_, value);
  }
  return *this;
}

JobLogCapture::JobLogCapture(absl::string_view job_id, size_t max_bytes)
    : buffer_(new Buffer) {
  buffer_->job_id = std::string(job_id);
  buffer_->bytes_max = max_bytes;
  Log::Get().AddCapture(buffer_.get());
}

JobLogCapture::~JobLogCapture() { Log::Get().RemoveCapture(buffer_.get()); }

std::string JobLogCapture::text() const {
  return Log::Get().CapturedText(*buffer_);
}

}  // namespace syncline
