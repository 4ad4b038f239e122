#include "common/system/file_version.h"

#include <sys/stat.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace syncline {
namespace {

std::string VersionOf(const struct stat& info) {
  return absl::StrCat(info.st_dev, " ", info.st_ino, " ", info.st_size, " ",
                      info.st_mtim.tv_sec, " ", info.st_mtim.tv_nsec, " ",
                      info.st_ctim.tv_sec, " ", info.st_ctim.tv_nsec);
}

}  // namespace

std::string FileVersion(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return absl::StrCat("errno ", errno);
  return VersionOf(info);
}

std::string FileVersion(int file) {
  struct stat info = {};
  if (fstat(file, &info) != 0) return absl::StrCat("errno ", errno);
  return VersionOf(info);
}

}  // namespace syncline
