#ifndef SYNCLINE_COMMON_SYSTEM_FILE_DESCRIPTOR_H_
#define SYNCLINE_COMMON_SYSTEM_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace syncline {

// Owns an open file descriptor, or none. Move-only; thread-compatible.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }
  // Gives it up: the caller closes it.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_FILE_DESCRIPTOR_H_
