#include "worker/data/reading/boundary.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"

namespace syncline::worker {
namespace {

constexpr int kLinksMax = 40;  // as Linux has it
constexpr char kOutsidePayload[] = "syncline/outside";
constexpr char kOfTenants[] = "tenants";

// A job without a tenant asks for what `folder` of the root has.
absl::Status TenantsError(absl::string_view path, absl::string_view folder) {
  absl::Status status = absl::PermissionDeniedError(
      absl::StrCat("\"", path, "\" leads into ", folder,
                   " of --data-root, where the data of ",
                   "tenants are; a job without a tenant reads none of them"));
  status.SetPayload(kOutsidePayload, absl::Cord(kOfTenants));
  return status;
}

// `path` without the folder; nothing if it is not below it.
std::optional<std::string> Below(const std::string& path,
                                 const std::string& folder) {
  if (path == folder) return "";
  const std::string start = folder == "/" ? folder : absl::StrCat(folder, "/");
  if (!absl::StartsWith(path, start)) return std::nullopt;
  return path.substr(start.size());
}

// Follows one path.
class Walk {
 public:
  static absl::StatusOr<Walk> To(const DataRoot& root,
                                 const std::string& path) {
    Walk walk(path);
    walk.closed_ = root.closed;
    walk.named_ = AbsolutePath(root);
    std::error_code error;
    walk.real_ = std::filesystem::canonical(walk.named_, error).string();
    if (error) return FileError(error.value(), "read", walk.named_);
    SYNCLINE_RETURN_IF_ERROR(walk.Run());
    return walk;
  }

  bool is_at_root() const { return folders_.size() == 1 && name_.empty(); }

  // For reading. Errors: it is no regular file; the system's.
  absl::StatusOr<FileDescriptor> OpenFile() const {
    if (name_.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path_, ": is a directory, not a file"));
    }
    // One that was replaced meanwhile does not block, and is no link.
    FileDescriptor file(openat(folders_.back().get(), name_.c_str(),
                               O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat info;
    if (!file.valid() || fstat(file.get(), &info) != 0) {
      return FileError(errno, "read", path_);
    }
    if (S_ISREG(info.st_mode)) return file;
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": is not a regular file"));
  }

  // The names in the folder; empty if it is none or may not be read.
  std::vector<std::string> List() const {
    std::vector<std::string> names;
    if (!name_.empty()) return names;
    const int fd =
        openat(folders_.back().get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return names;
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(fdopendir(fd), closedir);
    if (folder == nullptr) {
      close(fd);
      return names;
    }
    while (const dirent* entry = readdir(folder.get())) {
      names.emplace_back(entry->d_name);
    }
    return names;
  }

 private:
  explicit Walk(std::string path) : path_(std::move(path)) {}

  absl::Status Run() {
    SYNCLINE_RETURN_IF_ERROR(Go(path_));
    while (!rest_.empty()) {
      const std::string name = std::move(rest_.front());
      rest_.pop_front();
      if (!name_.empty()) return FileError(ENOTDIR, "read", path_);
      if (name == ".") continue;
      if (name == "..") {
        if (folders_.size() == 1) return OutsideError(path_);
        folders_.pop_back();
        continue;
      }
      SYNCLINE_RETURN_IF_ERROR(Enter(name));
    }
    return absl::OkStatus();
  }

  // Begins anew at the root if `to` is absolute.
  absl::Status Go(const std::string& to) {
    std::string names = to;
    if (absl::StartsWith(to, "/")) {
      std::optional<std::string> below = Below(to, named_);
      if (!below.has_value()) below = Below(to, real_);
      if (!below.has_value()) return OutsideError(path_);
      names = *std::move(below);
      folders_.clear();
      folders_.emplace_back(
          open(real_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
      if (!folders_.back().valid()) return FileError(errno, "read", real_);
    }
    const std::vector<std::string> parts =
        absl::StrSplit(names, '/', absl::SkipEmpty());
    rest_.insert(rest_.begin(), parts.begin(), parts.end());
    return absl::OkStatus();
  }

  absl::Status Enter(const std::string& name) {
    if (folders_.size() == 1 && !closed_.empty() && name == closed_) {
      return TenantsError(path_, closed_);
    }
    FileDescriptor next(openat(folders_.back().get(), name.c_str(),
                               O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat info;
    if (!next.valid() || fstat(next.get(), &info) != 0) {
      return FileError(errno, "read", path_);
    }
    if (S_ISDIR(info.st_mode)) {
      folders_.push_back(std::move(next));
      return absl::OkStatus();
    }
    if (!S_ISLNK(info.st_mode)) {
      if (!S_ISREG(info.st_mode)) {
        return absl::InvalidArgumentError(
            absl::StrCat(path_, ": is not a regular file"));
      }
      name_ = name;
      return absl::OkStatus();
    }
    if (++links_ > kLinksMax) return FileError(ELOOP, "read", path_);
    char target[PATH_MAX];
    const ssize_t size = readlinkat(next.get(), "", target, sizeof(target));
    if (size < 0) return FileError(errno, "read", path_);
    return Go(std::string(target, static_cast<size_t>(size)));
  }

  std::string path_;
  std::string named_;  // the root, and what it really is
  std::string real_;
  std::string closed_;                   // DataRoot's
  std::vector<FileDescriptor> folders_;  // from the root to where it is
  std::deque<std::string> rest_;
  std::string name_;  // of a file in the last folder; empty: the folder itself
  int links_ = 0;
};

absl::Status Match(const DataRoot& root, const std::string& folder,
                   absl::Span<const std::string> names,
                   std::vector<std::string>* matches) {
  if (names.empty()) {
    const auto found = Walk::To(root, folder);
    if (found.ok()) matches->push_back(folder);
    return IsOutside(found.status()) ? found.status() : absl::OkStatus();
  }
  const std::string& name = names[0];
  if (name.find_first_of("*?[") == std::string::npos) {
    return Match(root, absl::StrCat(folder, "/", name), names.subspan(1),
                 matches);
  }
  const auto walk = Walk::To(root, folder.empty() ? "/" : folder);
  if (!walk.ok()) {
    return IsOutside(walk.status()) ? walk.status() : absl::OkStatus();
  }
  for (const std::string& entry : walk->List()) {
    if (fnmatch(name.c_str(), entry.c_str(), FNM_PERIOD) != 0) continue;
    if (walk->is_at_root() && entry == root.closed) continue;
    SYNCLINE_RETURN_IF_ERROR(Match(root, absl::StrCat(folder, "/", entry),
                                   names.subspan(1), matches));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status OutsideError(absl::string_view path) {
  absl::Status status = absl::PermissionDeniedError(absl::StrCat(
      "\"", path, "\" leads outside --data-root, and this daemon reads no ",
      "data from anywhere else. Give a --data-root that holds all data, or "
      "start the daemon with --data-outside-root; with synctl local, leave "
      "--data-root out"));
  status.SetPayload(kOutsidePayload, absl::Cord("1"));
  return status;
}

bool LeadsToTenants(const absl::Status& status) {
  return status.GetPayload(kOutsidePayload) == absl::Cord(kOfTenants);
}

bool IsOutside(const absl::Status& status) {
  return status.GetPayload(kOutsidePayload).has_value();
}

absl::StatusOr<FileDescriptor> OpenWithin(const DataRoot& root,
                                          const std::string& path) {
  SYNCLINE_ASSIGN_OR_RETURN(const Walk walk, Walk::To(root, path));
  return walk.OpenFile();
}

absl::StatusOr<std::vector<std::string>> MatchWithin(
    const DataRoot& root, const std::string& pattern) {
  // A literal file first: its name may look like a pattern.
  const auto literal = Walk::To(root, pattern);
  if (IsOutside(literal.status())) return literal.status();
  if (literal.ok()) return std::vector<std::string>{pattern};
  // The root's own name is no pattern.
  const std::string named = AbsolutePath(root);
  std::error_code error;
  const std::string real = std::filesystem::canonical(named, error).string();
  if (error) return FileError(error.value(), "read", named);
  const bool by_name = Below(pattern, named).has_value();
  const std::optional<std::string> below =
      Below(pattern, by_name ? named : real);
  if (!below.has_value()) return OutsideError(pattern);
  const std::string folder = by_name ? named : real;
  const std::vector<std::string> names =
      absl::StrSplit(*below, '/', absl::SkipEmpty());
  std::vector<std::string> matches;
  SYNCLINE_RETURN_IF_ERROR(
      Match(root, folder == "/" ? "" : folder, names, &matches));
  std::sort(matches.begin(), matches.end());
  return matches;
}

}  // namespace syncline::worker
