#ifndef SYNCLINE_WORKER_DATA_READING_INPUT_FILE_H_
#define SYNCLINE_WORKER_DATA_READING_INPUT_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/system/file_descriptor.h"
#include "worker/data/reading/data_root.h"

namespace syncline::worker {

// A file of a job's data. (Converts from and to its path: a path is a file
// without a boundary.)
struct DataFile {
  // NOLINTNEXTLINE(google-explicit-constructor): see above
  DataFile(const char* path) : path(path) {}
  // NOLINTNEXTLINE(google-explicit-constructor): see above
  DataFile(std::string path, DataRoot root = {})
      : path(std::move(path)), root(std::move(root)) {}
  // NOLINTNEXTLINE(google-explicit-constructor): see above
  operator const std::string&() const { return path; }
  bool operator==(const std::string& other) const { return path == other; }

  std::string path;  // absolute
  DataRoot root;     // where it was looked for
};

// The files that `pattern` names: the file of that name, or
// else, where it has * ? or [, everything it matches, in byte order. A relative
// pattern is below `data_root`. Errors name the path and the data_root:
// NotFound, PermissionDenied (also what a bounded data_root does not hold,
// whether it is there or not), InvalidArgument (empty, a directory, not a
// regular file).
absl::StatusOr<std::vector<DataFile>> FindFiles(absl::string_view pattern,
                                                const DataRoot& data_root);

// Opens it, within its root where that is bounded: what a name leads to may
// have changed since FindFiles. Errors: as FindFiles'.
absl::StatusOr<FileDescriptor> OpenForReading(const DataFile& file);

// The content of a file as a stream of bytes; of a gzip file the decompressed
// content (all members). Holds a buffer, never the whole file.
// Thread-compatible.
class InputFile {
 public:
  // How a gzip file is recognised. Of a format that may begin with any bytes
  // these alone say nothing: its name has to end in .gz, too.
  enum class Gzip { kByBytes, kByNameAndBytes };
  static absl::StatusOr<std::unique_ptr<InputFile>> Open(
      const DataFile& file, Gzip gzip = Gzip::kByBytes);
  virtual ~InputFile() = default;

  // Fills out[0, count) as far as the content goes and returns how far: less
  // than `count` only at the end, 0 from then on. Errors name the file:
  // DataLoss (truncated or corrupt gzip, I/O error).
  virtual absl::StatusOr<size_t> Read(char* out, size_t count) = 0;
  // No content is longer than this; known before anything is read.
  virtual uint64_t size_bound() const = 0;
  virtual const std::string& path() const = 0;
};

// Fills out[0, count) from `file`. Errors name it: as Read's, and DataLoss
// where it ends before.
absl::Status ReadExactly(InputFile* file, char* out, size_t count);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_READING_INPUT_FILE_H_
