#ifndef SYNCLINE_COMMON_CLUSTER_FILE_CHUNKS_H_
#define SYNCLINE_COMMON_CLUSTER_FILE_CHUNKS_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"

namespace syncline {

// Data bytes in one FileChunk, at most.
inline constexpr size_t kFileChunkBytesMax = 1 << 20;

// Cuts a file into FileChunks. Blocks on disk reads only. Thread-compatible.
class FileChunkReader {
 public:
  // Errors: NotFound, PermissionDenied, Unavailable; each names the path.
  static absl::StatusOr<std::unique_ptr<FileChunkReader>> Open(
      const std::string& path);

  uint64_t size_bytes() const { return size_bytes_; }
  // The next chunk; the one with `last` set ends the file. Errors: DataLoss:
  // the file changed its size while it was read; Unavailable: it can not be
  // read.
  absl::Status Next(FileChunk* chunk);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  FileChunkReader(std::string path, std::FILE* file, uint64_t size_bytes)
      : path_(std::move(path)), size_bytes_(size_bytes), file_(file) {}

  const std::string path_;
  const uint64_t size_bytes_;
  std::unique_ptr<std::FILE, Close> file_;
  uint64_t offset_ = 0;
  uint32_t crc32c_ = 0;
};

// Puts FileChunks together again in a temporary file, which gets its name only
// when it is whole and on disk. Thread-compatible; blocks on disk writes.
class FileChunkWriter {
 public:
  // Writes to `temp_path` (replaced). A content above `bytes_max` is refused,
  // and one that is not of `declared_bytes`, where the sender has said how many
  // there are. Errors: ResourceExhausted: declared_bytes is above bytes_max.
  static absl::StatusOr<std::unique_ptr<FileChunkWriter>> Create(
      const std::string& temp_path, uint64_t bytes_max,
      std::optional<uint64_t> declared_bytes = std::nullopt);
  // Removes the temporary file unless it was committed.
  ~FileChunkWriter();

  // Errors: InvalidArgument: out of order, too long, after the last, or another
  // number of bytes than was declared;
  // DataLoss: checksum, found before the chunk is written; ResourceExhausted:
  // above bytes_max, or disk full.
  absl::Status Append(const FileChunk& chunk);
  // The last chunk has been appended.
  bool whole() const { return whole_; }
  // Flushes to disk and renames to `path`. REQUIRES: whole().
  absl::Status Commit(const std::string& path);

  const std::string& temp_path() const { return temp_path_; }
  uint64_t size_bytes() const { return size_bytes_; }
  uint32_t crc32c() const { return crc32c_; }

 private:
  FileChunkWriter(std::string temp_path, int fd, uint64_t bytes_max,
                  std::optional<uint64_t> declared_bytes)
      : temp_path_(std::move(temp_path)),
        bytes_max_(bytes_max),
        declared_bytes_(declared_bytes),
        fd_(fd) {}
  absl::Status CheckDeclared(const FileChunk& chunk) const;
  absl::Status Write(const std::string& data);

  const std::string temp_path_;
  const uint64_t bytes_max_;
  const std::optional<uint64_t> declared_bytes_;
  int fd_;
  bool whole_ = false;
  bool committed_ = false;
  uint64_t size_bytes_ = 0;
  uint32_t crc32c_ = 0;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_CLUSTER_FILE_CHUNKS_H_
