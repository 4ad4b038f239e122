#include "worker/data/reading/spool_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"

namespace syncline::worker {
namespace {

// A file below `folder` that has no name; -1 with errno.
int OpenNameless(const std::string& folder) {
  const int fd = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
  // The file system knows none: one whose name is gone at once.
  std::string path = absl::StrCat(folder, "/spool-XXXXXX");
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) unlink(path.c_str());
  return named;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SpoolFile>> SpoolFile::Create(
    const std::string& folder) {
  const int fd = OpenNameless(folder);
  if (fd < 0) {
    const int error = errno;
    const std::string message =
        absl::StrCat("no file can be made in ", folder, ": ", strerror(error));
    return error == ENOENT ? absl::NotFoundError(message)
                           : absl::PermissionDeniedError(message);
  }
  auto spool = absl::WrapUnique(new SpoolFile(folder, fd));
  struct statfs system;
  if (fstatfs(fd, &system) == 0 &&
      (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC)) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder,
                     " keeps its files in memory, which is to be saved; set "
                     "--work-dir to a folder on a disk"));
  }
  return spool;
}

SpoolFile::~SpoolFile() {
  if (data_ != nullptr) munmap(const_cast<char*>(data_), size_);
  close(fd_);
}

absl::Status SpoolFile::Error(const char* what, int error) const {
  const std::string message =
      absl::StrCat(what, " a file in ", folder_, ", which has ", size_,
                   " bytes: ", strerror(error));
  return error == ENOSPC || error == EDQUOT || error == EFBIG
             ? absl::ResourceExhaustedError(message)
             : absl::UnavailableError(message);
}

absl::Status SpoolFile::Append(const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = write(fd_, at, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Error("writing", errno);
    at += written;
    bytes -= static_cast<size_t>(written);
    size_ += static_cast<uint64_t>(written);
  }
  return absl::OkStatus();
}

absl::Status SpoolFile::Finish() {
  if (size_ == 0) return absl::OkStatus();
  void* const mapped = mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd_, 0);
  if (mapped == MAP_FAILED) return Error("mapping", errno);
  data_ = static_cast<const char*>(mapped);
  return absl::OkStatus();
}

void SpoolFile::WillRead(uint64_t begin, uint64_t end) const {
  Advise(begin, end, MADV_WILLNEED);
}

void SpoolFile::HasRead(uint64_t begin, uint64_t end) const {
  Advise(begin, end, MADV_DONTNEED);
}

void SpoolFile::Advise(uint64_t begin, uint64_t end, int advice) const {
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  begin = begin / page * page;
  end = std::min(end, size_);
  if (data_ == nullptr || begin >= end) return;
  madvise(const_cast<char*>(data_) + begin, end - begin, advice);
}

}  // namespace syncline::worker
