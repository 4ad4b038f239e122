#include "common/system/secret_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"
#include "common/system/file_descriptor.h"

namespace syncline {
namespace {

struct Access {
  uid_t user = 0;
  gid_t group = 0;
  mode_t mode = 0;
};

// None: there is no such file. A link is followed, as its readers do. Errors:
// FileError's.
absl::StatusOr<std::optional<Access>> AccessOf(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) == 0) {
    return Access{info.st_uid, info.st_gid, info.st_mode & 0777};
  }
  if (errno == ENOENT) return std::nullopt;
  return FileError(errno, "look at", path);
}

// Errors: FileError's.
absl::Status SetOwner(int file, const Access& access, const std::string& path) {
  struct stat info = {};
  if (fstat(file, &info) != 0) return FileError(errno, "look at", path);
  if (info.st_uid == access.user && info.st_gid == access.group) {
    return absl::OkStatus();
  }
  if (fchown(file, access.user, access.group) == 0) return absl::OkStatus();
  return FileError(errno,
                   absl::StrCat("keep the owner (user ", access.user,
                                ", group ", access.group, ") of"),
                   path);
}

// With the owner of `access`, and with its mode if `keeps_mode`.
absl::Status WriteNew(const std::string& path, absl::string_view content,
                      const std::optional<Access>& access, bool keeps_mode) {
  // A file that an earlier process with this id left may be readable by others.
  unlink(path.c_str());
  const FileDescriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
           S_IRUSR | S_IWUSR));
  if (file.get() < 0) return FileError(errno, "create", path);
  while (!content.empty()) {
    const ssize_t written = write(file.get(), content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError(errno, "write", path);
    content.remove_prefix(static_cast<size_t>(written));
  }
  if (access.has_value()) {
    SYNCLINE_RETURN_IF_ERROR(SetOwner(file.get(), *access, path));
    if (keeps_mode && fchmod(file.get(), access->mode) != 0) {
      return FileError(errno, "set the mode of", path);
    }
  }
  if (fsync(file.get()) != 0) return FileError(errno, "sync", path);
  return absl::OkStatus();
}

absl::Status Replace(const std::string& path, absl::string_view content,
                     bool keeps_mode) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto access, AccessOf(path));
  const std::string beside = absl::StrCat(path, ".tmp.", getpid());
  absl::Status written = WriteNew(beside, content, access, keeps_mode);
  if (written.ok() && std::rename(beside.c_str(), path.c_str()) != 0) {
    written = FileError(errno, "replace", path);
  }
  if (!written.ok()) {
    unlink(beside.c_str());
    return written;
  }
  const std::string parent = std::filesystem::path(path).parent_path();
  const FileDescriptor folder(open(parent.empty() ? "." : parent.c_str(),
                                   O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0 || fsync(folder.get()) != 0) {
    return FileError(errno, "sync", parent);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteSecretFile(const std::string& path,
                             absl::string_view content) {
  return Replace(path, content, /*keeps_mode=*/false);
}

absl::Status ReplaceSecretFile(const std::string& path,
                               absl::string_view content) {
  return Replace(path, content, /*keeps_mode=*/true);
}

}  // namespace syncline
