#include "server/spill/spill_file.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace syncline::ps {
namespace {

// The file grows by so much: large enough that asking the disk costs little;
// or by so much of what is allowed, if that is less.
constexpr uint64_t kGrowthBytes = 1 << 20;
constexpr uint64_t kGrowthShare = 64;

}  // namespace

absl::StatusOr<std::unique_ptr<SpillFile>> SpillFile::Create(
    const std::string& folder, size_t chunk_bytes, uint64_t bytes_max,
    uint64_t reserve_bytes) {
  const std::string path = absl::StrCat(folder, "/rows");
  const int file =
      open(path.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
  const int error = errno;
  std::unique_ptr<SpillFile> made(
      new SpillFile(folder, file, chunk_bytes, bytes_max, reserve_bytes));
  if (file < 0) return made->Error(error, "make a file");
  // Consecutive reads are of distant places, so read-ahead would not help.
  posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
  return made;
}

SpillFile::~SpillFile() {
  if (file_ >= 0) close(file_);
}

absl::Status SpillFile::Error(int error_number, absl::string_view verb) const {
  const std::string message =
      absl::StrCat("spilled rows in ", folder_, ": cannot ", verb, ": ",
                   std::strerror(error_number));
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    default:
      return absl::UnavailableError(message);
  }
}

absl::Status SpillFile::Grow(uint32_t chunks) {
  // Not ftruncate: a hole has no room on disk.
  int error = 0;
  do {
    error = posix_fallocate(file_, At(chunks_, 0), At(chunks, 0));
  } while (error == EINTR);
  if (error != 0) return Error(error, "grow");
  // The last goes first, so that rows lie in the order in which they came.
  for (uint32_t i = chunks; i > 0; --i) free_.push_back(chunks_ + i - 1);
  chunks_ += chunks;
  return absl::OkStatus();
}

absl::Status SpillFile::GrowIfLow() {
  const uint64_t growth = std::max<uint64_t>(
      1, std::min(kGrowthBytes, bytes_max_ / kGrowthShare) / chunk_bytes_);
  const uint64_t reserve = std::max(growth, reserve_bytes_ / chunk_bytes_);
  if (free_.size() > reserve) return absl::OkStatus();
  const uint64_t left = bytes_max_ / chunk_bytes_ - chunks_;
  if (left == 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("spilled rows in ", folder_, " take all of the ",
                     bytes_max_, " bytes that they may have"));
  }
  const uint64_t lacking = reserve + 1 - free_.size();
  absl::Status grown =
      Grow(static_cast<uint32_t>(std::min(std::max(growth, lacking), left)));
  // Takes the last of the disk chunk by chunk if no chunk is free. The file
  // stays low on room, so the error is returned all the same.
  if (!grown.ok() && free_.empty()) Grow(1).IgnoreError();
  return grown;
}

absl::StatusOr<uint32_t> SpillFile::Take() {
  MutexLock lock(&mu_);
  const absl::Status grown = GrowIfLow();
  low_.store(!grown.ok(), std::memory_order_relaxed);
  if (free_.empty()) return grown;
  const uint32_t chunk = free_.back();
  free_.pop_back();
  taken_.fetch_add(1, std::memory_order_relaxed);
  return chunk;
}

absl::Status SpillFile::CheckRoom() {
  if (!low_.load(std::memory_order_relaxed)) return absl::OkStatus();
  MutexLock lock(&mu_);
  absl::Status grown = GrowIfLow();
  low_.store(!grown.ok(), std::memory_order_relaxed);
  return grown;
}

void SpillFile::Give(const std::vector<uint32_t>& chunks) {
  MutexLock lock(&mu_);
  free_.insert(free_.end(), chunks.rbegin(), chunks.rend());
  taken_.fetch_sub(chunks.size(), std::memory_order_relaxed);
}

absl::Status SpillFile::Write(uint32_t chunk, size_t offset,
                              absl::string_view data) {
  while (!data.empty()) {
    const ssize_t written =
        pwrite(file_, data.data(), data.size(), At(chunk, offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Error(errno, "write");
    if (written == 0) return Error(ENOSPC, "write");
    offset += static_cast<size_t>(written);
    data.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status SpillFile::Read(uint32_t chunk, size_t offset, size_t bytes,
                             char* out) const {
  while (bytes > 0) {
    const ssize_t got = pread(file_, out, bytes, At(chunk, offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error(errno, "read");
    if (got == 0) {
      return absl::DataLossError(absl::StrCat(
          "spilled rows in ", folder_, ": the file is shorter than it was"));
    }
    out += got;
    offset += static_cast<size_t>(got);
    bytes -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::Status SpillFile::TryRead(uint32_t chunk, size_t offset, size_t bytes,
                                char* out, bool* there) const {
  iovec part = {out, bytes};
  const ssize_t got = preadv2(file_, &part, 1, At(chunk, offset), RWF_NOWAIT);
  *there = true;
  if (got == static_cast<ssize_t>(bytes)) return absl::OkStatus();
  if (got >= 0 || errno == EAGAIN) {
    *there = false;
    posix_fadvise(file_, At(chunk, offset), static_cast<int64_t>(bytes),
                  POSIX_FADV_WILLNEED);
    return absl::OkStatus();
  }
  // Some file systems know no such flag.
  return Read(chunk, offset, bytes, out);
}

}  // namespace syncline::ps
