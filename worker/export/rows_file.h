#ifndef SYNCLINE_WORKER_EXPORT_ROWS_FILE_H_
#define SYNCLINE_WORKER_EXPORT_ROWS_FILE_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace syncline::worker {

// Writes the rows of an embedding table as a safetensors file with the tensors
// `values` float32 [n, dim] and `keys` int64 [n], as they come, without holding
// them. Thread-compatible; blocks on disk writes. Format:
// https://github.com/huggingface/safetensors
class RowsFile {
 public:
  // Writes to `path`, and for a while to `path`.keys. Both are replaced. Errors
  // here and below: the file system's, naming the path.
  static absl::StatusOr<std::unique_ptr<RowsFile>> Create(
      const std::string& path, const std::string& table, int64_t dim);
  // Removes `path`.keys.
  ~RowsFile();

  // [n], and [n, dim].
  absl::Status Add(absl::Span<const int64_t> keys,
                   absl::Span<const float> values);
  // Completes the file. Nothing is added after that.
  absl::Status Finish();

  uint64_t rows() const { return rows_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, Close>;

  RowsFile(std::string path, std::string table, int64_t dim, File values,
           File keys);
  absl::Status Write(std::FILE* file, const void* data, size_t bytes);
  absl::Status AppendKeys();

  const std::string path_;
  const std::string table_;
  const int64_t dim_;
  File values_;
  File keys_;
  uint64_t rows_ = 0;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EXPORT_ROWS_FILE_H_
