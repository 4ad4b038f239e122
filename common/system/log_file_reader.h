#ifndef SYNCLINE_COMMON_SYSTEM_LOG_FILE_READER_H_
#define SYNCLINE_COMMON_SYSTEM_LOG_FILE_READER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/system/file_descriptor.h"

namespace syncline {

// Reads a file of lines that may still grow and be rotated (RotatingFile, with
// two files). It reads PATH.1, if that exists, then PATH, then the lines that
// are added. Memory: one piece. Thread-compatible.
class LogFileReader {
 public:
  static constexpr size_t kPieceBytesMax = 64 << 10;

  // `tail_lines`: only so many of the last lines that are there now; 0: all.
  // Errors: NotFound: there is neither file; others by errno.
  static absl::StatusOr<std::unique_ptr<LogFileReader>> Open(
      const std::string& path, uint64_t tail_lines);

  // The next whole lines, at most kPieceBytesMax of them; a longer line is cut.
  // Empty: there are none now. A line of this reader's own stands for lines
  // that were rotated away before they were read. Errors: by errno.
  absl::StatusOr<std::string> Next();
  // The last line, if it has no end because its process was killed; with an end
  // added. Empty: there is none. REQUIRES: Next() gave nothing.
  std::string TakeTornLine();

 private:
  explicit LogFileReader(std::string path) : path_(std::move(path)) {}
  absl::Status OpenFiles();
  absl::StatusOr<uint64_t> CountLines();
  // Reads on into buffer_; false: the files that are known have no more.
  absl::StatusOr<bool> Fill();
  // Ends a line whose rest never comes.
  void EndTornLine();
  // Opens the file that has taken the place of the one that is read; false:
  // there is none.
  absl::StatusOr<bool> FollowRotation();

  const std::string path_;
  std::deque<FileDescriptor> files_;  // the first is read; it is never empty
  uint64_t skip_lines_ = 0;
  std::string buffer_;      // read, not given yet
  bool cuts_line_ = false;  // its end is dropped
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_LOG_FILE_READER_H_
