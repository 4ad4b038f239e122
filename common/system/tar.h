#ifndef SYNCLINE_COMMON_SYSTEM_TAR_H_
#define SYNCLINE_COMMON_SYSTEM_TAR_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace syncline {

// Archives of plain files, in the format of GNU's `tar`. Each file is a header
// of 512 bytes, its content, and zeros up to a multiple of 512 bytes. Two
// blocks of zeros end the archive. GNU's extensions hold names of more than 100
// bytes and files of 8 GiB or more.

struct TarEntry {
  std::string name;
  uint64_t bytes = 0;
};

// The bytes before the content of `entry`. The file's mode is 0600. REQUIRES: a
// name without zero bytes.
std::string TarHeader(const TarEntry& entry);
// The zeros after a content of `bytes` bytes.
std::string TarPadding(uint64_t bytes);
std::string TarEnd();

// True if `name` is a path below the folder that it is relative to: it is not
// empty, does not begin with '/', and has no part "..". Links are not looked
// at.
bool IsPathBelow(absl::string_view name);

// Reads an archive from the front. Folders are skipped. An archive with a link,
// a device, or a name that leads out of the folder is refused, because
// unpacking it could write elsewhere. So is what other readers may take for
// something else: a folder with content, a name with a part "." or an empty
// one. Blocks on the disk. Thread-compatible.
class TarReader {
 public:
  // Errors: those of the file system.
  static absl::StatusOr<std::unique_ptr<TarReader>> Open(
      const std::string& path);

  // The next file; none: the archive has ended as it should, with its two
  // blocks of zeros and no other content behind them. Then it is not called
  // again. The unread rest of the file before is skipped. Errors: DataLoss: the
  // archive is cut off or damaged, a number in it is not written as tar writes
  // it, something comes after its end, or the file is no archive;
  // FailedPrecondition: it is refused, with the name of the entry.
  absl::StatusOr<std::optional<TarEntry>> Next();
  // The next bytes of the file, at most `bytes_max`; empty: the file has ended.
  // Errors: DataLoss: the archive is cut off.
  absl::StatusOr<std::string> Read(size_t bytes_max);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  TarReader(std::string path, std::FILE* file)
      : path_(std::move(path)), file_(file) {}
  absl::Status Damaged(const std::string& what) const;
  absl::StatusOr<std::string> ReadBytes(size_t bytes);
  absl::Status Skip(uint64_t bytes);
  // After the first block of zeros.
  absl::Status CheckEnd();

  const std::string path_;
  const std::unique_ptr<std::FILE, Close> file_;
  uint64_t left_ = 0;     // of the entry's content
  uint64_t padding_ = 0;  // after it
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_TAR_H_
