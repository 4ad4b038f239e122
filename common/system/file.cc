#include "common/system/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/fault_points.h"
#include "common/base/status_macros.h"

namespace syncline {
namespace {

// Closes on every way out; Close() where the result counts.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Close() { return close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

absl::Status Check(const std::error_code& error, absl::string_view verb,
                   absl::string_view path) {
  if (!error) return absl::OkStatus();
  return FileError(error.value(), verb, path);
}

absl::Status WriteAll(int fd, absl::string_view content,
                      const std::string& path) {
  while (!content.empty()) {
    const ssize_t written = write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError(errno, "write", path);
    content.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status WriteNewFile(const std::string& path, absl::string_view content) {
  FileDescriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.valid()) return FileError(errno, "create", path);
  SYNCLINE_RETURN_IF_ERROR(WriteAll(file.get(), content, path));
  if (fsync(file.get()) != 0) return FileError(errno, "sync", path);
  if (file.Close() != 0) return FileError(errno, "close", path);
  return absl::OkStatus();
}

// Makes a rename within it durable.
absl::Status SyncDirectory(const std::string& path) {
  FileDescriptor directory(
      open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid()) return FileError(errno, "open", path);
  if (fsync(directory.get()) != 0) return FileError(errno, "sync", path);
  return absl::OkStatus();
}

}  // namespace

absl::Status FileError(int error_number, absl::string_view verb,
                       absl::string_view path) {
  return absl::ErrnoToStatus(error_number,
                             absl::StrCat("cannot ", verb, " \"", path, "\""));
}

absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     uint64_t bytes_max) {
  // Non-blocking, so that opening a pipe without a writer does not hang.
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid()) return FileError(errno, "read", path);
  struct stat info;
  if (fstat(file.get(), &info) != 0) return FileError(errno, "read", path);
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot read \"", path, "\": it is ",
                     S_ISDIR(info.st_mode) ? "a directory" : "not a file"));
  }
  std::string content;
  content.reserve(std::min<uint64_t>(info.st_size, bytes_max));
  // Not on the stack: that of an HTTP server's thread is small.
  constexpr size_t kPieceBytes = 64 << 10;
  const auto buffer = std::make_unique<char[]>(kPieceBytes);
  while (true) {
    const ssize_t got = read(file.get(), buffer.get(), kPieceBytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(errno, "read", path);
    if (got == 0) return content;
    if (content.size() + static_cast<uint64_t>(got) > bytes_max) {
      return absl::ResourceExhaustedError(absl::StrCat("cannot read \"", path,
                                                       "\": it is larger than ",
                                                       bytes_max, " bytes"));
    }
    content.append(buffer.get(), static_cast<size_t>(got));
  }
}

absl::Status WriteFileAtomically(const std::string& path,
                                 absl::string_view content) {
  const std::string beside = absl::StrCat(path, ".tmp.", getpid());
  absl::Status written = WriteNewFile(beside, content);
  if (written.ok()) written = AtFaultPoint(FaultPoint::kFileRename);
  if (written.ok() && std::rename(beside.c_str(), path.c_str()) != 0) {
    written = FileError(errno, "replace", path);
  }
  if (!written.ok()) {
    unlink(beside.c_str());
    return written;
  }
  const std::string parent = std::filesystem::path(path).parent_path();
  return SyncDirectory(parent.empty() ? "." : parent);
}

absl::StatusOr<uint64_t> FileSize(const std::string& path) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  SYNCLINE_RETURN_IF_ERROR(Check(error, "read", path));
  return size;
}

absl::Status MakeDirs(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  return Check(error, "create directory", path);
}

absl::Status RemoveTree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  return Check(error, "remove", path);
}

}  // namespace syncline
