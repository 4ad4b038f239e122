#ifndef SYNCLINE_COMMON_SYSTEM_ROTATING_FILE_H_
#define SYNCLINE_COMMON_SYSTEM_ROTATING_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace syncline {

// A file that grows by whole lines. When a line would take FILE over
// `rotate_bytes`, FILE becomes FILE.1, FILE.1 becomes FILE.2, and so on; at
// most `files_kept` files exist, FILE included. A line is never split over two
// files. Thread-compatible.
class RotatingFile {
 public:
  // Appends to what is there. Errors: FileError's.
  static absl::StatusOr<std::unique_ptr<RotatingFile>> Open(
      const std::string& path, uint64_t rotate_bytes, int files_kept);
  ~RotatingFile();
  RotatingFile(const RotatingFile&) = delete;
  RotatingFile& operator=(const RotatingFile&) = delete;

  // After an error (disk full) later lines are tried again; if a part of a line
  // was written, the next one begins on a line of its own. If only the rotation
  // failed, the line is appended to the file that is open, and no file is lost.
  absl::Status Append(absl::string_view line);

 private:
  RotatingFile(std::string path, uint64_t rotate_bytes, int files_kept);
  absl::Status OpenFile();
  void Rotate();
  // FILE becomes FILE.1, and so on. False: a file could not be renamed.
  bool ShiftNames();
  absl::Status Write(absl::string_view bytes);

  const std::string path_;
  const uint64_t rotate_bytes_;
  const int files_kept_;
  int fd_ = -1;
  uint64_t size_bytes_ = 0;
  bool is_torn_ = false;  // the last line was written in part
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_ROTATING_FILE_H_
