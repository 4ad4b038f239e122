#include "common/system/free_disk.h"

#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace syncline {

absl::StatusOr<uint64_t> FreeDiskBytes(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(),
                               absl::StrCat("cannot make ", folder));
  }
  // Permissions do not tell of file systems that are read-only or full.
  std::string probe = absl::StrCat(folder, "/syncline-XXXXXX");
  const int file = mkstemp(probe.data());
  if (file < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write to ", folder));
  }
  close(file);
  unlink(probe.c_str());
  struct statvfs space = {};
  if (statvfs(folder.c_str(), &space) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot ask ", folder));
  }
  return uint64_t{space.f_bavail} * space.f_frsize;
}

}  // namespace syncline
