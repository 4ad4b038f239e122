#include "common/system/locked_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"

namespace syncline {
namespace {

constexpr char kLockSuffix[] = ".lock";
constexpr int kFoldersMax = 1024;
// A lock file that its holder removes between our open and our lock.
constexpr int kLockAttempts = 16;

std::string LockPath(const std::string& path) {
  return absl::StrCat(path, kLockSuffix);
}

absl::Status NotOurs(const std::string& path) {
  return absl::PermissionDeniedError(
      absl::StrCat("\"", path, "\" is a link, or belongs to another user"));
}

absl::Status InUse(const std::string& path) {
  return absl::UnavailableError(
      absl::StrCat("folder ", path, " is in use by another process"));
}

// The name still means this open file.
bool IsStillNamed(int file, const std::string& path) {
  struct stat opened;
  struct stat named;
  return fstat(file, &opened) == 0 && lstat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

absl::StatusOr<FileDescriptor> Lock(const std::string& path) {
  const std::string lock_path = LockPath(path);
  for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
    FileDescriptor lock(open(lock_path.c_str(),
                             O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!lock.valid() && errno == ELOOP) return NotOurs(lock_path);
    if (!lock.valid()) return FileError(errno, "open", lock_path);
    if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return FileError(errno, "lock", lock_path);
      break;
    }
    if (IsStillNamed(lock.get(), lock_path)) return lock;
  }
  return InUse(path);
}

// Locks the folder itself. Cleaners of temporary files may delete a lock file
// that is in use; they leave a locked folder alone, as systemd-tmpfiles does.
// Not valid: there is no folder, or its file system does not lock folders, as
// NFS does not.
absl::StatusOr<FileDescriptor> LockFolder(const std::string& path) {
  FileDescriptor folder(
      open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.valid()) return folder;
  if (flock(folder.get(), LOCK_EX | LOCK_NB) == 0) return folder;
  if (errno == EWOULDBLOCK) return InUse(path);
  return FileDescriptor();
}

// True if this user made `path`, as a file or a folder.
bool IsOurs(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0 && info.st_uid == geteuid() &&
         (S_ISDIR(info.st_mode) || S_ISREG(info.st_mode));
}

// Returns the new folder's own lock. REQUIRES: its lock file is locked.
absl::StatusOr<FileDescriptor> MakeEmpty(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) == 0 && !IsOurs(path)) return NotOurs(path);
  {
    SYNCLINE_ASSIGN_OR_RETURN(const FileDescriptor old, LockFolder(path));
    SYNCLINE_RETURN_IF_ERROR(RemoveTree(path));
  }
  if (mkdir(path.c_str(), 0700) != 0) {
    return FileError(errno, "create directory", path);
  }
  // A folder that is there need not be writable.
  const std::string probe = absl::StrCat(path, "/probe");
  SYNCLINE_RETURN_IF_ERROR(WriteFileAtomically(probe, "probe"));
  SYNCLINE_RETURN_IF_ERROR(RemoveTree(probe));
  return LockFolder(path);
}

// True for the text that OpenFirst puts behind a prefix. Version 0.1 put
// "ps-NUMBER" there. A folder that a user gave a similar name is not ours.
bool IsNumbered(absl::string_view rest) {
  absl::ConsumePrefix(&rest, "syncline-ps-");
  absl::ConsumePrefix(&rest, "ps-");
  return !rest.empty() && rest.size() <= 5 &&
         std::all_of(rest.begin(), rest.end(), [](char c) {
           return absl::ascii_isdigit(static_cast<unsigned char>(c));
         });
}

}  // namespace

absl::StatusOr<std::unique_ptr<LockedFolder>> LockedFolder::Open(
    const std::string& root, absl::string_view name) {
  SYNCLINE_RETURN_IF_ERROR(MakeDirs(root));
  const std::string path = absl::StrCat(root, "/", name);
  SYNCLINE_ASSIGN_OR_RETURN(FileDescriptor lock, Lock(path));
  absl::StatusOr<FileDescriptor> folder = MakeEmpty(path);
  if (!folder.ok()) {
    unlink(LockPath(path).c_str());
    return folder.status();
  }
  return absl::WrapUnique(
      new LockedFolder(path, std::move(lock), *std::move(folder)));
}

absl::StatusOr<std::unique_ptr<LockedFolder>> LockedFolder::OpenFirst(
    const std::string& root, absl::string_view prefix) {
  absl::Status last;
  for (int i = 0; i < kFoldersMax; ++i) {
    auto folder = Open(root, absl::StrCat(prefix, i));
    if (folder.ok()) return folder;
    last = folder.status();
    if (!absl::IsUnavailable(last) && !absl::IsPermissionDenied(last)) break;
  }
  return last;
}

int LockedFolder::RemoveLeftovers(const std::string& root,
                                  absl::string_view prefix) {
  std::error_code error;
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(root, error)) {
    const std::string name = entry.path().filename();
    absl::string_view rest = absl::StripSuffix(name, kLockSuffix);
    if (!absl::ConsumePrefix(&rest, prefix) || !IsNumbered(rest) ||
        !IsOurs(entry.path())) {
      continue;
    }
    names.insert(std::string(absl::StripSuffix(name, kLockSuffix)));
  }
  int removed = 0;
  for (const std::string& name : names) {
    if (Open(root, name).ok()) ++removed;  // and closed at once
  }
  return removed;
}

// While the lock is held: who opens its file before this is told that its name
// has gone, or made anew.
LockedFolder::~LockedFolder() {
  RemoveTree(path_).IgnoreError();
  unlink(LockPath(path_).c_str());
}

}  // namespace syncline
