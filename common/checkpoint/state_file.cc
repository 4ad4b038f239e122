#include "common/checkpoint/state_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/fault_points.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_commit.h"
#include "common/system/file.h"

namespace syncline {
namespace {

// Large enough for a disk, or a server of files, to work at its full speed.
constexpr size_t kBufferBytes = StateFileSource::kReadBytes;

absl::Status DiskError(int error_number, absl::string_view verb,
                       const std::string& path) {
  return AsCheckpointDiskError(FileError(error_number, verb, path));
}

}  // namespace

// --- Sink --------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<StateFileSink>> StateFileSink::Create(
    const std::string& path, std::function<absl::Status()> go_on) {
  SYNCLINE_RETURN_IF_ERROR(AtFaultPoint(FaultPoint::kCheckpointCreate));
  FileDescriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.valid()) return DiskError(errno, "create", path);
  return absl::WrapUnique(
      new StateFileSink(path, std::move(file), std::move(go_on)));
}

StateFileSink::StateFileSink(const std::string& path, FileDescriptor file,
                             std::function<absl::Status()> go_on)
    : path_(path), go_on_(std::move(go_on)), file_(std::move(file)) {
  buffer_.reserve(kBufferBytes);
}

StateFileSink::~StateFileSink() {
  if (!finished_) unlink(path_.c_str());
}

absl::Status StateFileSink::Append(absl::string_view head,
                                   absl::string_view bulk) {
  for (absl::string_view part : {head, bulk}) {
    crc32c_ = ExtendCrc32c(crc32c_, part);
    bytes_ += part.size();
    while (!part.empty()) {
      const size_t count = std::min(part.size(), kBufferBytes - buffer_.size());
      buffer_.append(part.data(), count);
      part.remove_prefix(count);
      if (buffer_.size() == kBufferBytes) SYNCLINE_RETURN_IF_ERROR(Flush());
    }
  }
  return absl::OkStatus();
}

absl::Status StateFileSink::Flush() {
  if (go_on_ != nullptr) SYNCLINE_RETURN_IF_ERROR(go_on_());
  SYNCLINE_RETURN_IF_ERROR(AtFaultPoint(FaultPoint::kCheckpointWrite));
  SYNCLINE_RETURN_IF_ERROR(Write(buffer_));
  buffer_.clear();
  // The disk begins while what follows is copied. Only a hint: fsync waits for
  // all of it.
  sync_file_range(file_.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
  return absl::OkStatus();
}

absl::Status StateFileSink::Write(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return DiskError(errno, "write", path_);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status StateFileSink::Finish() {
  SYNCLINE_RETURN_IF_ERROR(Flush());
  SYNCLINE_RETURN_IF_ERROR(AtFaultPoint(FaultPoint::kCheckpointSync));
  if (fsync(file_.get()) != 0) return DiskError(errno, "sync", path_);
  // Some file systems tell only now that the disk is full.
  if (close(file_.Release()) != 0) return DiskError(errno, "close", path_);
  finished_ = true;
  return absl::OkStatus();
}

// --- Source ------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<StateFileSource>> StateFileSource::Open(
    const std::string& path, uint64_t bytes, uint32_t crc32c,
    std::function<absl::Status()> go_on) {
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid()) return FileError(errno, "read", path);
  struct stat info;
  if (fstat(file.get(), &info) != 0) return FileError(errno, "read", path);
  if (!S_ISREG(info.st_mode) || static_cast<uint64_t>(info.st_size) != bytes) {
    return absl::DataLossError(
        absl::StrCat(path, ": the file has ", info.st_size,
                     " bytes, the manifest says ", bytes));
  }
  posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  return absl::WrapUnique(new StateFileSource(path, std::move(file), bytes,
                                              crc32c, std::move(go_on)));
}

StateFileSource::StateFileSource(const std::string& path, FileDescriptor file,
                                 uint64_t bytes, uint32_t crc32c,
                                 std::function<absl::Status()> go_on)
    : path_(path),
      file_(std::move(file)),
      bytes_(bytes),
      crc32c_(crc32c),
      go_on_(std::move(go_on)) {}

absl::StatusOr<size_t> StateFileSource::Read(size_t bytes, char* out) {
  size_t done = 0;
  while (done < bytes) {
    if (at_ < buffer_.size()) {
      const size_t count = std::min(bytes - done, buffer_.size() - at_);
      std::memcpy(out + done, buffer_.data() + at_, count);
      done += count;
      at_ += count;
      continue;
    }
    if (go_on_ != nullptr) SYNCLINE_RETURN_IF_ERROR(go_on_());
    buffer_.resize(kBufferBytes);
    at_ = 0;
    ssize_t got = 0;
    do {
      got = read(file_.get(), buffer_.data(), buffer_.size());
    } while (got < 0 && errno == EINTR);
    if (got < 0) return DiskError(errno, "read", path_);
    buffer_.resize(static_cast<size_t>(got));
    checksum_ = ExtendCrc32c(checksum_, buffer_);
    read_ += buffer_.size();
    if (got > 0) continue;
    if (read_ != bytes_) {
      return absl::DataLossError(absl::StrCat(path_, ": the file has ", read_,
                                              " bytes, the manifest says ",
                                              bytes_));
    }
    if (checksum_ != crc32c_) {
      return absl::DataLossError(absl::StrCat(
          path_, ": the file's checksum is not the one in the manifest"));
    }
    break;
  }
  return done;
}

}  // namespace syncline
