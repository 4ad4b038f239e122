#include "worker/export/kept_results.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/incarnation.h"
#include "common/system/file.h"
#include "common/system/log.h"

namespace syncline::worker {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "syncline-results-";

// Of a file or folder of this user's; none: it is not, or cannot be read.
std::optional<absl::Time> ChangedAt(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0 || info.st_uid != geteuid()) {
    return std::nullopt;
  }
  return absl::TimeFromTimespec(info.st_mtim);
}

// The latest change of a folder and of all that is in it; none: not all of it
// could be seen.
std::optional<absl::Time> LastChange(const std::string& folder) {
  std::optional<absl::Time> last = ChangedAt(folder);
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (; last.has_value() && !error && entry != fs::end(entry);
       entry.increment(error)) {
    const std::optional<absl::Time> changed = ChangedAt(entry->path().string());
    if (!changed.has_value()) return std::nullopt;
    last = std::max(*last, *changed);
  }
  return error ? std::nullopt : last;
}

}  // namespace

std::string KeptResultsFolder(absl::string_view root, absl::string_view job_id,
                              uint64_t incarnation) {
  return absl::StrCat(root, "/", kPrefix, job_id, "-",
                      IncarnationText(incarnation));
}

int RemoveOldResults(const std::string& root) {
  std::error_code error;
  std::vector<std::string> folders;
  for (fs::directory_iterator entry(root, error);
       !error && entry != fs::end(entry); entry.increment(error)) {
    struct stat info;
    const std::string path = entry->path().string();
    if (absl::StartsWith(entry->path().filename().string(), kPrefix) &&
        lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
      folders.push_back(path);
    }
  }
  int removed = 0;
  for (const std::string& folder : folders) {
    const std::optional<absl::Time> changed = LastChange(folder);
    if (!changed.has_value() || absl::Now() - *changed < kKeptResultsAge) {
      continue;
    }
    const absl::Status status = RemoveTree(folder);
    LogWarning("results that were not fetched are removed")
        .Field("folder", folder)
        .Field("unchanged_for", absl::FormatDuration(absl::Trunc(
                                    absl::Now() - *changed, absl::Hours(1))))
        .Status(status);
    removed += status.ok() ? 1 : 0;
  }
  return removed;
}

}  // namespace syncline::worker
