#include "tests/bench/cold_read.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/system/file.h"
#include "common/system/file_descriptor.h"

namespace syncline {
namespace {

constexpr size_t kPieceBytes = 4 << 20;

}  // namespace

absl::Status DropCache(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return FileError(errno, "open", path);
  if (posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED) == 0) {
    return absl::OkStatus();
  }
  return FileError(errno, "drop the cache of", path);
}

absl::StatusOr<double> ReadCold(const std::string& path) {
  if (absl::Status dropped = DropCache(path); !dropped.ok()) return dropped;
  std::vector<char> piece(kPieceBytes);
  const absl::Time begin = absl::Now();
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return FileError(errno, "open", path);
  posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  while (true) {
    const ssize_t got = read(file.get(), piece.data(), piece.size());
    if (got < 0) return FileError(errno, "read", path);
    if (got == 0) break;
  }
  return absl::ToDoubleSeconds(absl::Now() - begin);
}

}  // namespace syncline
