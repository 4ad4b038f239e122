#include "tests/testing/small_disk.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"
#include "common/system/file_descriptor.h"

namespace syncline {
namespace {

absl::Status NotPermitted(const char* what) {
  return absl::UnimplementedError(
      absl::StrCat(what, ": ", absl::ErrnoToStatus(errno, "").message()));
}

void WriteText(const char* file, const std::string& text) {
  std::ofstream(file) << text;
}

}  // namespace

absl::Status EnterMountNamespace() {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (unshare(CLONE_NEWNS) != 0) {
    // As root of a user namespace, which anybody may be where the system lets
    // them.
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
      return NotPermitted("mount namespace");
    }
    WriteText("/proc/self/setgroups", "deny");
    WriteText("/proc/self/uid_map", absl::StrCat("0 ", user, " 1"));
    WriteText("/proc/self/gid_map", absl::StrCat("0 ", group, " 1"));
  }
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return NotPermitted("private mounts");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SmallDisk>> SmallDisk::Mount(
    const std::string& path, uint64_t bytes) {
  SYNCLINE_RETURN_IF_ERROR(MakeDirs(path));
  const std::string size = absl::StrCat("size=", bytes);
  if (mount("tmpfs", path.c_str(), "tmpfs", MS_NODEV | MS_NOSUID,
            size.c_str()) != 0) {
    return NotPermitted("tmpfs");
  }
  return absl::WrapUnique(new SmallDisk(path));
}

SmallDisk::~SmallDisk() { umount2(path_.c_str(), MNT_DETACH); }

absl::Status SmallDisk::Fill() {
  struct statvfs free;
  if (statvfs(path_.c_str(), &free) != 0) {
    return FileError(errno, "look at", path_);
  }
  const FileDescriptor file(
      open(Ballast().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (!file.valid()) return FileError(errno, "create", Ballast());
  const auto bytes = static_cast<off_t>(free.f_bavail * free.f_frsize);
  // Somebody may have taken a part of it by now.
  for (off_t take = bytes; take > 4096; take -= take / 16) {
    if (posix_fallocate(file.get(), 0, take) == 0) break;
  }
  return absl::OkStatus();
}

void SmallDisk::Free() { unlink(Ballast().c_str()); }

}  // namespace syncline
