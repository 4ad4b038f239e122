#ifndef SYNCLINE_WORKER_DATA_READING_SPOOL_FILE_H_
#define SYNCLINE_WORKER_DATA_READING_SPOOL_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace syncline::worker {

// Bytes on disk that are written once, in order, and then read anywhere as if
// they were in memory; the system keeps of them what it has room for. The file
// has no name: no other process can change it, and nothing is left of it when
// the process ends, however it does. (A disk that fails under a read ends the
// process, SIGBUS.) Thread-compatible; thread-safe once finished.
class SpoolFile {
 public:
  // Below `folder`, which exists and is on a disk. Errors name it: NotFound,
  // PermissionDenied; InvalidArgument: its files are in memory.
  static absl::StatusOr<std::unique_ptr<SpoolFile>> Create(
      const std::string& folder);
  ~SpoolFile();
  SpoolFile(const SpoolFile&) = delete;
  SpoolFile& operator=(const SpoolFile&) = delete;

  // Errors, naming folder and size: ResourceExhausted: the disk is full;
  // Unavailable: any other failure.
  absl::Status Append(const void* data, size_t bytes);
  // From now on data() may be read. Errors: likewise.
  absl::Status Finish();

  const char* data() const { return data_; }
  uint64_t size() const { return size_; }

  // Hints: [begin, end) will soon be read, or not again for a while: then it
  // does not count as this process's memory. Rounded to pages.
  void WillRead(uint64_t begin, uint64_t end) const;
  void HasRead(uint64_t begin, uint64_t end) const;

 private:
  SpoolFile(std::string folder, int fd) : folder_(std::move(folder)), fd_(fd) {}
  absl::Status Error(const char* what, int error) const;
  void Advise(uint64_t begin, uint64_t end, int advice) const;

  const std::string folder_;
  const int fd_;
  uint64_t size_ = 0;
  const char* data_ = nullptr;  // null until finished, or empty
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_READING_SPOOL_FILE_H_
