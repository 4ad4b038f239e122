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
      open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return FileError(errno, "open", path_);
  struct stat info;
  if (fstat(fd, &info) != 0) {
    const int error = errno;
    close(fd);
    return FileError(error, "open", path_);
  }
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
  size_bytes_ = static_cast<uint64_t>(info.st_size);
  return absl::OkStatus();
}

void RotatingFile::Rotate() {
  const auto name = [this](int i) {
    return i == 0 ? path_ : absl::StrCat(path_, ".", i);
  };
  if (files_kept_ <= 1) {
    std::remove(path_.c_str());
  }
  // Names that do not exist yet fail to be renamed, which is as it should be.
  for (int i = files_kept_ - 2; i >= 0; --i) {
    std::rename(name(i).c_str(), name(i + 1).c_str());
  }
  // If this fails, lines go on to the file that is still open.
  OpenFile().IgnoreError();
}

absl::Status RotatingFile::Append(absl::string_view line) {
  if (size_bytes_ > 0 && size_bytes_ + line.size() > rotate_bytes_) Rotate();
  while (!line.empty()) {
    const ssize_t written = write(fd_, line.data(), line.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError(errno, "write", path_);
    size_bytes_ += static_cast<uint64_t>(written);
    line.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace syncline
