#include "common/cluster/file_chunks.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"

namespace syncline {
namespace {

// A rename is durable once its directory is.
absl::Status SyncDirectoryOf(const std::string& path) {
  const std::string directory = path.substr(0, path.find_last_of('/') + 1);
  const int fd = ::open(directory.empty() ? "." : directory.c_str(),
                        O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return FileError(errno, "open", directory);
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  if (result != 0) return FileError(error, "sync", directory);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileChunkReader>> FileChunkReader::Open(
    const std::string& path) {
  // A pipe that nobody writes to would not open without O_NONBLOCK.
  const int opened = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (opened < 0) return FileError(errno, "open", path);
  struct stat info;
  if (::fstat(opened, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(opened);
    return absl::NotFoundError(absl::StrCat(path, ": not a regular file"));
  }
  std::FILE* const file = ::fdopen(opened, "rb");
  if (file == nullptr) {
    const int error = errno;
    ::close(opened);
    return FileError(error, "open", path);
  }
  return std::unique_ptr<FileChunkReader>(
      new FileChunkReader(path, file, static_cast<uint64_t>(info.st_size)));
}

absl::Status FileChunkReader::Next(FileChunk* chunk) {
  chunk->Clear();
  chunk->set_offset(offset_);
  std::string* data = chunk->mutable_data();
  data->resize(std::min<uint64_t>(kFileChunkBytesMax, size_bytes_ - offset_));
  const size_t got = std::fread(data->data(), 1, data->size(), file_.get());
  if (got != data->size()) {
    if (std::ferror(file_.get()) != 0) {
      return absl::UnavailableError(absl::StrCat(path_, ": cannot read"));
    }
    return absl::DataLossError(absl::StrCat(
        path_, ": ends at byte ", offset_ + got, ", expected ", size_bytes_));
  }
  crc32c_ = ExtendCrc32c(crc32c_, *data);
  offset_ += got;
  chunk->set_last(offset_ == size_bytes_);
  chunk->set_crc32c(crc32c_);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FileChunkWriter>> FileChunkWriter::Create(
    const std::string& temp_path, uint64_t bytes_max,
    std::optional<uint64_t> declared_bytes) {
  if (declared_bytes.value_or(0) > bytes_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "file of ", *declared_bytes, " bytes is larger than the limit of ",
        bytes_max, " bytes"));
  }
  const int fd =
      ::open(temp_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return FileError(errno, "create", temp_path);
  return std::unique_ptr<FileChunkWriter>(
      new FileChunkWriter(temp_path, fd, bytes_max, declared_bytes));
}

FileChunkWriter::~FileChunkWriter() {
  if (fd_ >= 0) ::close(fd_);
  if (!committed_) ::unlink(temp_path_.c_str());
}

absl::Status FileChunkWriter::CheckDeclared(const FileChunk& chunk) const {
  if (!declared_bytes_.has_value()) return absl::OkStatus();
  const uint64_t bytes = size_bytes_ + chunk.data().size();
  if (bytes > *declared_bytes_) {
    return absl::InvalidArgumentError(
        absl::StrCat("file goes on after the ", *declared_bytes_,
                     " bytes that were declared"));
  }
  if (chunk.last() && bytes < *declared_bytes_) {
    return absl::InvalidArgumentError(
        absl::StrCat("file ends after ", bytes, " bytes, but ",
                     *declared_bytes_, " were declared"));
  }
  return absl::OkStatus();
}

absl::Status FileChunkWriter::Append(const FileChunk& chunk) {
  if (whole_) return absl::InvalidArgumentError("a chunk after the last one");
  if (chunk.offset() != size_bytes_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "chunk at offset ", chunk.offset(), ", expected ", size_bytes_));
  }
  const std::string& data = chunk.data();
  if (data.size() > kFileChunkBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "chunk of ", data.size(), " bytes; at most ", kFileChunkBytesMax));
  }
  if (data.size() > bytes_max_ - size_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "file is larger than the limit of ", bytes_max_, " bytes"));
  }
  SYNCLINE_RETURN_IF_ERROR(CheckDeclared(chunk));
  const uint32_t crc32c = ExtendCrc32c(crc32c_, data);
  const bool says_checksum = chunk.last() || chunk.crc32c() != 0;
  if (says_checksum && chunk.crc32c() != crc32c) {
    return absl::DataLossError(absl::StrCat(
        "checksum mismatch after ", size_bytes_ + data.size(),
        " bytes: CRC-32C is ", absl::Hex(crc32c, absl::kZeroPad8),
        ", expected ", absl::Hex(chunk.crc32c(), absl::kZeroPad8)));
  }
  SYNCLINE_RETURN_IF_ERROR(Write(data));
  crc32c_ = crc32c;
  size_bytes_ += data.size();
  whole_ = chunk.last();
  return absl::OkStatus();
}

absl::Status FileChunkWriter::Write(const std::string& data) {
  for (size_t written = 0; written < data.size();) {
    const ssize_t n =
        ::write(fd_, data.data() + written, data.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(errno, "write", temp_path_);
    written += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status FileChunkWriter::Commit(const std::string& path) {
  if (!whole_) return absl::InvalidArgumentError("the last chunk is missing");
  if (::fsync(fd_) != 0) return FileError(errno, "sync", temp_path_);
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) return FileError(errno, "close", temp_path_);
  if (::rename(temp_path_.c_str(), path.c_str()) != 0) {
    return FileError(errno, "rename to", path);
  }
  committed_ = true;
  return SyncDirectoryOf(path);
}

}  // namespace syncline
