#include "common/system/rotating_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"
#include "common/system/file_descriptor.h"

namespace syncline {

absl::StatusOr<std::unique_ptr<RotatingFile>> RotatingFile::Open(
    const std::string& path, uint64_t rotate_bytes, int files_kept) {
  auto file =
      absl::WrapUnique(new RotatingFile(path, rotate_bytes, files_kept));
  SYNCLINE_RETURN_IF_ERROR(file->OpenFile());
  return file;
}

RotatingFile::RotatingFile(std::string path, uint64_t rotate_bytes,
                           int files_kept)
    : path_(std::move(path)),
      rotate_bytes_(rotate_bytes),
      files_kept_(files_kept) {}

RotatingFile::~RotatingFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status RotatingFile::OpenFile() {
  const int fd =
      open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return FileError(errno, "open", path_);
  struct stat info;
  char last = '\n';
  if (fstat(fd, &info) != 0 ||
      (info.st_size > 0 && pread(fd, &last, 1, info.st_size - 1) < 0)) {
    const int error = errno;
    close(fd);
    return FileError(error, "open", path_);
  }
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
  size_bytes_ = static_cast<uint64_t>(info.st_size);
  is_torn_ = last != '\n';
  return absl::OkStatus();
}

bool RotatingFile::ShiftNames() {
  const auto name = [this](int i) {
    return i == 0 ? path_ : absl::StrCat(path_, ".", i);
  };
  for (int i = files_kept_ - 2; i >= 0; --i) {
    // Names that do not exist yet are as they should be.
    if (std::rename(name(i).c_str(), name(i + 1).c_str()) != 0 &&
        errno != ENOENT) {
      return false;
    }
  }
  return true;
}

void RotatingFile::Rotate() {
  // The new file comes first. If it cannot be made, nothing is renamed, and
  // lines go on to the file that is still open.
  const std::string next = absl::StrCat(path_, ".new");
  FileDescriptor file(open(
      next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
  if (!file.valid()) return;
  if (!ShiftNames() || std::rename(next.c_str(), path_.c_str()) != 0) {
    std::remove(next.c_str());  // the next line tries again
    return;
  }
  close(fd_);
  fd_ = file.Release();
  size_bytes_ = 0;
  is_torn_ = false;
}

absl::Status RotatingFile::Write(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError(errno, "write", path_);
    size_bytes_ += static_cast<uint64_t>(written);
    is_torn_ = true;  // until the line is whole
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status RotatingFile::Append(absl::string_view line) {
  if (size_bytes_ > 0 && size_bytes_ + line.size() > rotate_bytes_) Rotate();
  if (is_torn_) {
    SYNCLINE_RETURN_IF_ERROR(Write("\n"));
    is_torn_ = false;
  }
  SYNCLINE_RETURN_IF_ERROR(Write(line));
  is_torn_ = false;
  return absl::OkStatus();
}

}  // namespace syncline
