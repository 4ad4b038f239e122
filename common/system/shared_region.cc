#include "common/system/shared_region.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/system/available_memory.h"

namespace syncline {
namespace {

// Without these a peer could take pages away from under a reader.
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

absl::Status SystemError(const char* what, size_t bytes) {
  return absl::ResourceExhaustedError(absl::StrCat(
      what, " of ", bytes, " bytes of shared memory: ", strerror(errno)));
}

absl::StatusOr<uint8_t*> MapMemory(int fd, size_t bytes,
                                   SharedRegion::Access access) {
  // A region that is only read is large, and its pages are mapped when they are
  // touched, many at a time. A region that is written would be touched page by
  // page, so it is mapped at once.
  const bool writes = access == SharedRegion::Access::kReadWrite;
  void* const data =
      mmap(nullptr, bytes, writes ? PROT_READ | PROT_WRITE : PROT_READ,
           MAP_SHARED | (writes ? MAP_POPULATE : 0), fd, 0);
  if (data == MAP_FAILED) return SystemError("mmap", bytes);
  return static_cast<uint8_t*>(data);
}

}  // namespace

absl::StatusOr<std::shared_ptr<SharedRegion>> SharedRegion::Create(
    size_t bytes) {
  if (bytes == 0) return absl::InvalidArgumentError("a region of no bytes");
  // The system would hand out pages until it has none, and then kill a process.
  // Half of the available memory is left to other processes.
  const uint64_t available = AvailableMemoryBytes();
  if (bytes > available / 2) {
    return absl::ResourceExhaustedError(
        absl::StrCat(bytes, " bytes of shared memory, more than half of the ",
                     available, " that are available"));
  }
  FileDescriptor memory(
      memfd_create("syncline", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.valid()) return SystemError("memfd_create", bytes);
  // Unlike ftruncate, this fails here and now if there is no memory.
  if (const int error = posix_fallocate(memory.get(), 0, bytes); error != 0) {
    errno = error;
    return SystemError("allocation", bytes);
  }
  // The peer that reads it may seal it further.
  if (fcntl(memory.get(), F_ADD_SEALS, kSizeSeals) != 0) {
    return SystemError("sealing", bytes);
  }
  const absl::StatusOr<uint8_t*> data =
      MapMemory(memory.get(), bytes, Access::kReadWrite);
  if (!data.ok()) return data.status();
  return absl::WrapUnique(new SharedRegion(std::move(memory), *data, bytes));
}

absl::StatusOr<size_t> SharedRegion::SizeOf(const FileDescriptor& memory) {
  // Other file systems can fail on access, with a signal: pages of a disk that
  // cannot be read, huge pages that are not there.
  struct statfs system;
  if (fstatfs(memory.get(), &system) != 0 || system.f_type != TMPFS_MAGIC) {
    return absl::FailedPreconditionError("this is not shared memory");
  }
  const int seals = fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals) {
    return absl::FailedPreconditionError(
        "shared memory whose size is not sealed");
  }
  struct stat status;
  if (fstat(memory.get(), &status) != 0 || status.st_size <= 0) {
    return absl::FailedPreconditionError("shared memory without bytes");
  }
  return static_cast<size_t>(status.st_size);
}

absl::StatusOr<std::shared_ptr<SharedRegion>> SharedRegion::Map(
    const FileDescriptor& memory, size_t bytes_max, Access access) {
  SYNCLINE_ASSIGN_OR_RETURN(const size_t bytes, SizeOf(memory));
  if (bytes > bytes_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "shared memory of ", bytes, " bytes, there is room for ", bytes_max));
  }
  // Before the look at its pages: they cannot go after it.
  if (access == Access::kRead &&
      (fcntl(memory.get(), F_GET_SEALS) & F_SEAL_FUTURE_WRITE) == 0 &&
      fcntl(memory.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("shared memory whose pages could go: ", strerror(errno)));
  }
  struct stat status;
  // Pages that are not there yet would be taken from this process's share.
  if (fstat(memory.get(), &status) != 0 || status.st_blocks < 0 ||
      static_cast<uint64_t>(status.st_blocks) * 512 < bytes) {
    return absl::FailedPreconditionError("shared memory that is not all there");
  }
  const absl::StatusOr<uint8_t*> data = MapMemory(memory.get(), bytes, access);
  if (!data.ok()) return data.status();
  return absl::WrapUnique(new SharedRegion(FileDescriptor(), *data, bytes));
}

SharedRegion::~SharedRegion() { munmap(data_, size_); }

bool SharedRegion::Contains(const void* bytes, size_t size) const {
  const auto begin = reinterpret_cast<uintptr_t>(data_);
  const auto first = reinterpret_cast<uintptr_t>(bytes);
  return first >= begin && first - begin <= size_ &&
         size <= size_ - (first - begin);
}

}  // namespace syncline
