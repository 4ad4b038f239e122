#include "common/system/job_logs.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/base/trace_id.h"
#include "common/system/file.h"

namespace syncline {
namespace {

namespace fs = std::filesystem;

constexpr size_t kOpenFilesMax = 4;
constexpr char kSuffix[] = ".log";
constexpr size_t kJobIdBytesMax = 64;

// A job id comes from another process: it must not lead out of the folder.
bool IsName(absl::string_view job_id) {
  return !job_id.empty() && job_id.size() <= kJobIdBytesMax &&
         absl::c_all_of(job_id, [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  c == '-';
         });
}

absl::StatusOr<std::string> FileName(absl::string_view job_id,
                                     absl::string_view trace_id) {
  if (!IsName(job_id)) {
    return absl::InvalidArgumentError("job_id: no name of a job");
  }
  if (trace_id.empty()) return absl::StrCat(job_id, kSuffix);
  SYNCLINE_RETURN_IF_ERROR(CheckTraceId("trace_id", trace_id));
  return absl::StrCat(job_id, "-", trace_id, kSuffix);
}

// When the file was last written to.
fs::file_time_type WrittenAt(const std::string& path) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  return error ? fs::file_time_type::min() : time;
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobLogs>> JobLogs::Open(
    const std::string& folder) {
  SYNCLINE_RETURN_IF_ERROR(MakeDirs(folder));
  struct stat info = {};
  if (lstat(folder.c_str(), &info) != 0) {
    return FileError(errno, "open", folder);
  }
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid()) {
    return absl::PermissionDeniedError(
        absl::StrCat("\"", folder,
                     "\" is another user's, or no folder: logs of jobs are "
                     "not kept there"));
  }
  if (chmod(folder.c_str(), 0700) != 0) {
    return FileError(errno, "change the rights of", folder);
  }
  return absl::WrapUnique(new JobLogs(folder));
}

void JobLogs::Append(absl::string_view job_id, absl::string_view trace_id,
                     absl::string_view line) {
  const auto name = FileName(job_id, trace_id);
  if (!name.ok()) return;
  MutexLock lock(&mu_);
  RotatingFile* const file = Find(*name);
  if (file != nullptr) file->Append(line).IgnoreError();
}

RotatingFile* JobLogs::Find(const std::string& name) {
  const auto found = absl::c_find_if(
      open_, [&](const OpenFile& open) { return open.name == name; });
  if (found != open_.end()) {
    open_.splice(open_.begin(), open_, found);
    return open_.front().file.get();
  }
  const std::string path = absl::StrCat(folder_, "/", name);
  std::error_code error;
  const bool is_first = !fs::exists(path, error);
  auto file = RotatingFile::Open(path, kRotateBytes, /*files_kept=*/2);
  if (!file.ok()) return nullptr;
  if (is_first) DeleteOld();
  open_.push_front({name, *std::move(file)});
  if (open_.size() > kOpenFilesMax) open_.pop_back();
  return open_.front().file.get();
}

void JobLogs::DeleteOld() const {
  std::error_code error;
  std::vector<std::pair<fs::file_time_type, std::string>> logs;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    const std::string path = entry.path().string();
    if (absl::EndsWith(path, kSuffix)) logs.emplace_back(WrittenAt(path), path);
  }
  if (logs.size() <= kJobsMax) return;
  std::sort(logs.begin(), logs.end());
  logs.resize(logs.size() - kJobsMax);
  for (const auto& [time, path] : logs) {
    fs::remove(path, error);
    fs::remove(absl::StrCat(path, ".1"), error);
  }
}

absl::StatusOr<std::unique_ptr<LogFileReader>> JobLogs::Read(
    absl::string_view job_id, absl::string_view trace_id,
    uint64_t tail_lines) const {
  SYNCLINE_ASSIGN_OR_RETURN(const std::string name, FileName(job_id, trace_id));
  auto reader =
      LogFileReader::Open(absl::StrCat(folder_, "/", name), tail_lines);
  if (!absl::IsNotFound(reader.status())) return reader;
  return absl::NotFoundError(
      absl::StrCat("this process has no log of job ", job_id));
}

std::string KeptJobLog(absl::string_view job_id) {
  const std::shared_ptr<JobLogs> logs = KeptJobLogs();
  if (logs == nullptr) return "";
  const auto reader = logs->Read(job_id, JobTraceOf(job_id), /*tail_lines=*/0);
  if (!reader.ok()) return "";
  std::string text;
  for (;;) {
    const auto piece = (*reader)->Next();
    if (!piece.ok() || piece->empty()) break;
    text.append(*piece);
    if (text.size() > 3 * JobLogs::kRotateBytes) break;
  }
  return text;
}

}  // namespace syncline
