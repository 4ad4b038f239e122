#include "common/checkpoint/state_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/crc32c.h"
#include "common/base/fault_points.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_commit.h"
#include "common/checkpoint/manifest.h"
#include "common/system/file.h"

namespace syncline {
namespace {

// Large enough for a disk, or a server of files, to work at its full speed.
constexpr size_t kBufferBytes = 4 << 20;
// How soon a file that is given up while the disk takes a piece ends.
constexpr absl::Duration kAskPeriod = absl::Milliseconds(100);

// Reads of less go through a buffer of this size. A record that is passed over
// costs one of them, for its frame and meta.
constexpr size_t kSmallBytes = 16 << 10;

absl::Status DiskError(int error_number, absl::string_view verb,
                       const std::string& path) {
  return AsCheckpointDiskError(FileError(error_number, verb, path));
}

// Reads at `at` what the disk gives; 0: the end.
absl::StatusOr<size_t> ReadAt(const FileDescriptor& file,
                              const std::string& path, uint64_t at,
                              size_t bytes, char* out) {
  ssize_t got = 0;
  do {
    got = pread(file.get(), out, bytes, static_cast<off_t>(at));
  } while (got < 0 && errno == EINTR);
  if (got < 0) return DiskError(errno, "read", path);
  return static_cast<size_t>(got);
}

}  // namespace

absl::Status AwaitDisk(DiskThread* disk,
                       const std::function<absl::Status()>& go_on,
                       absl::Duration wait_max,
                       absl::FunctionRef<std::string()> what,
                       const DiskCalls* calls) {
  const auto made_calls = [&] {
    return calls == nullptr ? uint64_t{0} : calls->made();
  };
  absl::Time deadline = MonotonicNow() + wait_max;
  uint64_t seen = made_calls();
  while (true) {
    if (go_on != nullptr) SYNCLINE_RETURN_IF_ERROR(go_on());
    if (const uint64_t now = made_calls(); now != seen) {
      seen = now;
      deadline = MonotonicNow() + wait_max;
    }
    const std::optional<absl::Status> made =
        disk->Await(std::min(deadline, MonotonicNow() + kAskPeriod));
    if (made.has_value()) return *made;
    if (MonotonicNow() >= deadline && made_calls() == seen) {
      return absl::UnavailableError(what());
    }
  }
}

// --- Sink --------------------------------------------------------------------

struct StateFileSink::File {
  // On the disk's thread.
  ~File() {
    if (!finished) unlink(path.c_str());
  }
  absl::Status Open();
  absl::Status Write(absl::string_view piece);
  absl::Status Finish();

  std::string path;
  FileDescriptor descriptor = {};
  bool finished = false;
};

absl::Status StateFileSink::File::Open() {
  SYNCLINE_RETURN_IF_ERROR(AtFaultPoint(FaultPoint::kCheckpointCreate));
  // A file of that name that another checkpoint needs stays as it is there.
  struct stat there;
  if (stat(path.c_str(), &there) == 0 && S_ISREG(there.st_mode) &&
      there.st_nlink > 1) {
    unlink(path.c_str());
  }
  descriptor = FileDescriptor(
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (descriptor.valid()) return absl::OkStatus();
  finished = true;  // what is there is not this file
  return DiskError(errno, "create", path);
}

absl::Status StateFileSink::File::Write(absl::string_view piece) {
  SYNCLINE_RETURN_IF_ERROR(AtFaultPoint(FaultPoint::kCheckpointWrite));
  for (absl::string_view rest = piece; !rest.empty();) {
    const ssize_t written = write(descriptor.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return DiskError(errno, "write", path);
    rest.remove_prefix(static_cast<size_t>(written));
  }
  // The disk begins while what follows is copied. Only a hint: fsync waits for
  // all of it.
  sync_file_range(descriptor.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
  return absl::OkStatus();
}

absl::Status StateFileSink::File::Finish() {
  SYNCLINE_RETURN_IF_ERROR(AtFaultPoint(FaultPoint::kCheckpointSync));
  if (fsync(descriptor.get()) != 0) return DiskError(errno, "sync", path);
  // Some file systems tell only now that the disk is full.
  if (close(descriptor.Release()) != 0) return DiskError(errno, "close", path);
  finished = true;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<StateFileSink>> StateFileSink::Create(
    const std::string& path, std::function<absl::Status()> go_on,
    DiskThread* disk) {
  auto file = std::make_shared<File>();
  file->path = path;
  SYNCLINE_RETURN_IF_ERROR(disk->Run([file] { return file->Open(); }));
  return absl::WrapUnique(
      new StateFileSink(std::move(file), std::move(go_on), disk));
}

StateFileSink::StateFileSink(std::shared_ptr<File> file,
                             std::function<absl::Status()> go_on,
                             DiskThread* disk)
    : go_on_(std::move(go_on)),
      disk_(disk),
      file_(std::move(file)),
      piece_(std::make_shared<std::string>()) {
  buffer_.reserve(kBufferBytes);
  piece_->reserve(kBufferBytes);
}

StateFileSink::~StateFileSink() {
  // The file ends with the last call that has it, behind its pieces.
  (void)disk_->Run([file = std::move(file_)] { return absl::OkStatus(); });
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
  SYNCLINE_RETURN_IF_ERROR(AwaitDisk());
  piece_->swap(buffer_);
  buffer_.clear();
  disk_->Begin([file = file_, piece = piece_] { return file->Write(*piece); });
  return absl::OkStatus();
}

absl::Status StateFileSink::AwaitDisk() {
  return syncline::AwaitDisk(disk_, go_on_, piece_wait_max_, [this] {
    return absl::StrCat(file_->path, ": the disk hangs: it has not taken ",
                        piece_->size(), " bytes in ",
                        absl::FormatDuration(piece_wait_max_));
  });
}

absl::Status StateFileSink::Finish() {
  SYNCLINE_RETURN_IF_ERROR(Flush());
  SYNCLINE_RETURN_IF_ERROR(AwaitDisk());
  return disk_->Run([file = file_] { return file->Finish(); });
}

// --- Source ------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<StateFileSource>> StateFileSource::Open(
    const std::string& path, uint64_t bytes, uint32_t crc32c,
    std::function<absl::Status()> go_on) {
  return Make(path, bytes, crc32c, std::move(go_on), std::nullopt);
}

absl::StatusOr<std::unique_ptr<StateFileSource>> StateFileSource::OpenWatched(
    const std::string& path, uint64_t bytes, uint32_t crc32c,
    std::function<absl::Status()> go_on, absl::Duration wait_max) {
  return Make(path, bytes, crc32c, std::move(go_on), wait_max);
}

absl::StatusOr<std::unique_ptr<StateFileSource>> StateFileSource::OpenUnlisted(
    const std::string& path, std::function<absl::Status()> go_on,
    std::optional<absl::Duration> wait_max) {
  return Make(path, std::nullopt, std::nullopt, std::move(go_on), wait_max);
}

struct StateFileSource::Opened {
  std::shared_ptr<const FileDescriptor> descriptor;
  uint64_t bytes = 0;
};

absl::StatusOr<StateFileSource::Opened> StateFileSource::OpenFile(
    const std::string& path, std::optional<uint64_t> bytes) {
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid()) return FileError(errno, "read", path);
  struct stat info;
  if (fstat(file.get(), &info) != 0) return FileError(errno, "read", path);
  const auto size = static_cast<uint64_t>(info.st_size);
  if (!S_ISREG(info.st_mode) || size != bytes.value_or(size)) {
    return absl::DataLossError(absl::StrCat(path, ": the file has ", size,
                                            " bytes, ", bytes.value_or(size),
                                            " were written"));
  }
  posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  return Opened{std::make_shared<const FileDescriptor>(std::move(file)), size};
}

absl::StatusOr<std::unique_ptr<StateFileSource>> StateFileSource::Make(
    const std::string& path, std::optional<uint64_t> bytes,
    std::optional<uint32_t> crc32c, std::function<absl::Status()> go_on,
    std::optional<absl::Duration> wait_max) {
  Opened opened;
  std::unique_ptr<DiskThread> disk;
  if (wait_max.has_value()) {
    disk = std::make_unique<DiskThread>("read-disk");
    const auto file = std::make_shared<Opened>();
    disk->Begin([file, path, bytes]() -> absl::Status {
      SYNCLINE_ASSIGN_OR_RETURN(*file, OpenFile(path, bytes));
      return absl::OkStatus();
    });
    SYNCLINE_RETURN_IF_ERROR(AwaitDisk(disk.get(), go_on, *wait_max, [&] {
      return absl::StrCat(path,
                          ": the disk hangs: it has not opened the file "
                          "in ",
                          absl::FormatDuration(*wait_max));
    }));
    opened = *file;
  } else {
    SYNCLINE_ASSIGN_OR_RETURN(opened, OpenFile(path, bytes));
  }
  auto source = absl::WrapUnique(
      new StateFileSource(path, std::move(opened), crc32c, std::move(go_on)));
  if (disk != nullptr) {
    source->wait_max_ = *wait_max;
    source->piece_ = std::make_shared<std::string>();
    source->disk_ = std::move(disk);
  }
  return source;
}

StateFileSource::StateFileSource(const std::string& path, Opened file,
                                 std::optional<uint32_t> crc32c,
                                 std::function<absl::Status()> go_on)
    : path_(path),
      file_(std::move(file.descriptor)),
      bytes_(file.bytes),
      crc32c_(crc32c),
      go_on_(std::move(go_on)) {}

absl::StatusOr<size_t> StateFileSource::ReadSome(size_t bytes, char* out) {
  if (at_ >= ask_at_) {
    if (go_on_ != nullptr) SYNCLINE_RETURN_IF_ERROR(go_on_());
    ask_at_ = at_ + kReadBytes;
  }
  size_t got = 0;
  if (disk_ != nullptr) {
    SYNCLINE_ASSIGN_OR_RETURN(got, ReadWatched(bytes, out));
  } else {
    SYNCLINE_ASSIGN_OR_RETURN(got, ReadAt(*file_, path_, at_, bytes, out));
  }
  at_ += got;
  if (read_ != nullptr) *read_ += got;
  return got;
}

absl::StatusOr<size_t> StateFileSource::ReadWatched(size_t bytes, char* out) {
  bytes = std::min(bytes, kReadBytes);
  disk_->Begin([file = file_, piece = piece_, path = path_, at = at_,
                bytes]() -> absl::Status {
    piece->resize(bytes);
    SYNCLINE_ASSIGN_OR_RETURN(const size_t got,
                              ReadAt(*file, path, at, bytes, piece->data()));
    piece->resize(got);
    return absl::OkStatus();
  });
  SYNCLINE_RETURN_IF_ERROR(AwaitDisk(disk_.get(), go_on_, wait_max_, [&] {
    return absl::StrCat(path_, ": the disk hangs: it has not given ", bytes,
                        " bytes in ", absl::FormatDuration(wait_max_));
  }));
  std::memcpy(out, piece_->data(), piece_->size());
  return piece_->size();
}

absl::StatusOr<size_t> StateFileSource::Read(size_t bytes, char* out) {
  size_t done = 0;
  while (done < bytes) {
    const size_t left = bytes - done;
    if (used_ < buffer_.size()) {
      const size_t count = std::min(left, buffer_.size() - used_);
      std::memcpy(out + done, buffer_.data() + used_, count);
      done += count;
      used_ += count;
      continue;
    }
    size_t got = 0;
    if (left >= kSmallBytes) {
      SYNCLINE_ASSIGN_OR_RETURN(got, ReadSome(left, out + done));
      done += got;
    } else {
      buffer_.resize(kSmallBytes);
      used_ = kSmallBytes;
      SYNCLINE_ASSIGN_OR_RETURN(got, ReadSome(kSmallBytes, buffer_.data()));
      buffer_.resize(got);
      used_ = 0;
    }
    if (got == 0) break;
  }
  return done;
}

absl::StatusOr<size_t> StateFileSource::Skip(size_t bytes) {
  const size_t buffered = std::min(bytes, buffer_.size() - used_);
  used_ += buffered;
  const uint64_t beyond =
      std::min<uint64_t>(bytes - buffered, bytes_ - std::min(bytes_, at_));
  at_ += beyond;
  return buffered + static_cast<size_t>(beyond);
}

absl::StatusOr<std::unique_ptr<ShardStateSource>> StateFileSource::OpenOlder(
    uint64_t cut_id, uint64_t bytes, uint32_t crc32c) const {
  SYNCLINE_ASSIGN_OR_RETURN(
      std::unique_ptr<StateFileSource> older,
      Make(OlderStateFile(path_, cut_id), bytes, crc32c, go_on_,
           disk_ != nullptr ? std::optional<absl::Duration>(wait_max_)
                            : std::nullopt));
  older->CountIn(read_);
  return older;
}

absl::Status StateFileSource::CheckWhole(uint32_t crc32c) const {
  if (crc32c == crc32c_.value_or(crc32c)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      path_, ": the file's checksum is not the one that was written"));
}

}  // namespace syncline
