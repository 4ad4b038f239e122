#include "worker/export/rows_file.h"

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"

namespace syncline::worker {
namespace {

// Room for the header, which is written when the number of rows is known. The
// format lets spaces fill it.
constexpr size_t kHeaderBytes = 1024;
constexpr size_t kCopyBytes = 1 << 20;
constexpr size_t kNameBytesMax = 256;

std::string KeysPath(const std::string& path) {
  return absl::StrCat(path, ".keys");
}

// A JSON string; what would need an escape is replaced.
std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text.substr(0, kNameBytesMax)) {
    const bool plain = c >= ' ' && c < 127 && c != '"' && c != '\\';
    quoted.push_back(plain ? c : '_');
  }
  return quoted + "\"";
}

std::string Header(const std::string& table, uint64_t rows, int64_t dim) {
  const uint64_t value_bytes =
      rows * static_cast<uint64_t>(dim) * sizeof(float);
  std::string json =
      absl::StrCat("{\"__metadata__\":{\"table\":", Quoted(table),
                   "},\"values\":{\"dtype\":\"F32\",\"shape\":[", rows, ",",
                   dim, "],\"data_offsets\":[0,", value_bytes,
                   "]},\"keys\":{\"dtype\":\"I64\",\"shape\":[", rows,
                   "],\"data_offsets\":[", value_bytes, ",",
                   value_bytes + rows * sizeof(int64_t), "]}}");
  const uint64_t size = kHeaderBytes - sizeof(uint64_t);
  json.resize(size, ' ');
  std::string header(sizeof(size), '\0');
  std::memcpy(header.data(), &size, sizeof(size));
  return header + json;
}

}  // namespace

RowsFile::RowsFile(std::string path, std::string table, int64_t dim,
                   File values, File keys)
    : path_(std::move(path)),
      table_(std::move(table)),
      dim_(dim),
      values_(std::move(values)),
      keys_(std::move(keys)) {}

absl::StatusOr<std::unique_ptr<RowsFile>> RowsFile::Create(
    const std::string& path, const std::string& table, int64_t dim) {
  File values(std::fopen(path.c_str(), "wb"));
  if (values == nullptr) return FileError(errno, "create", path);
  File keys(std::fopen(KeysPath(path).c_str(), "w+b"));
  if (keys == nullptr) return FileError(errno, "create", KeysPath(path));
  std::unique_ptr<RowsFile> file(
      new RowsFile(path, table, dim, std::move(values), std::move(keys)));
  const std::string room(kHeaderBytes, ' ');
  SYNCLINE_RETURN_IF_ERROR(
      file->Write(file->values_.get(), room.data(), room.size()));
  return file;
}

RowsFile::~RowsFile() { std::remove(KeysPath(path_).c_str()); }

absl::Status RowsFile::Add(absl::Span<const int64_t> keys,
                           absl::Span<const float> values) {
  rows_ += keys.size();
  SYNCLINE_RETURN_IF_ERROR(
      Write(keys_.get(), keys.data(), keys.size() * sizeof(int64_t)));
  return Write(values_.get(), values.data(), values.size() * sizeof(float));
}

absl::Status RowsFile::Finish() {
  SYNCLINE_RETURN_IF_ERROR(AppendKeys());
  const std::string header = Header(table_, rows_, dim_);
  if (std::fseek(values_.get(), 0, SEEK_SET) != 0) {
    return FileError(errno, "write", path_);
  }
  SYNCLINE_RETURN_IF_ERROR(Write(values_.get(), header.data(), header.size()));
  if (std::fclose(values_.release()) != 0) {
    return FileError(errno, "write", path_);
  }
  return absl::OkStatus();
}

absl::Status RowsFile::Write(std::FILE* file, const void* data, size_t bytes) {
  if (std::fwrite(data, 1, bytes, file) != bytes) {
    return FileError(errno, "write", path_);
  }
  return absl::OkStatus();
}

absl::Status RowsFile::AppendKeys() {
  if (std::fflush(keys_.get()) != 0 ||
      std::fseek(keys_.get(), 0, SEEK_SET) != 0) {
    return FileError(errno, "read", KeysPath(path_));
  }
  std::vector<char> buffer(kCopyBytes);
  uint64_t left = rows_ * sizeof(int64_t);
  while (left > 0) {
    const size_t got = std::fread(buffer.data(), 1, buffer.size(), keys_.get());
    if (got == 0 || got > left) {
      return FileError(errno, "read", KeysPath(path_));
    }
    SYNCLINE_RETURN_IF_ERROR(Write(values_.get(), buffer.data(), got));
    left -= got;
  }
  return absl::OkStatus();
}

}  // namespace syncline::worker
