#include "worker/export/tensors_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/model/safetensors.h"
#include "common/system/file.h"

namespace syncline::worker {
namespace {

// A JSON string. Bytes of UTF-8 stay as they are.
std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted.push_back('\\');
    if (static_cast<unsigned char>(c) < ' ') {
      absl::StrAppendFormat(&quoted, "\\u%04x", c);
    } else {
      quoted.push_back(c);
    }
  }
  return quoted + "\"";
}

// With its length before it, and spaces behind it so that the values are
// aligned.
std::string Header(absl::Span<const NamedTensor> tensors) {
  std::vector<std::string> entries = {
      absl::StrCat("\"__metadata__\":{\"", kSafetensorsWriter, "\":\"",
                   kSafetensorsWriterIsSyncline, "\"}")};
  uint64_t offset = 0;
  for (const NamedTensor& tensor : tensors) {
    const uint64_t end = offset + tensor.values.size() * sizeof(float);
    entries.push_back(
        absl::StrCat(Quoted(tensor.name), ":{\"dtype\":\"F32\",\"shape\":[",
                     absl::StrJoin(tensor.dims, ","), "],\"data_offsets\":[",
                     offset, ",", end, "]}"));
    offset = end;
  }
  std::string json = absl::StrCat("{", absl::StrJoin(entries, ","), "}");
  constexpr uint64_t kAlignment = 8;
  const uint64_t size =
      (json.size() + kAlignment - 1) / kAlignment * kAlignment;
  json.resize(size, ' ');
  std::string header(sizeof(size), '\0');
  std::memcpy(header.data(), &size, sizeof(size));
  return header + json;
}

}  // namespace

absl::Status WriteTensors(const std::string& path,
                          absl::Span<const NamedTensor> tensors) {
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return FileError(errno, "create", path);
  const std::string header = Header(tensors);
  bool good =
      std::fwrite(header.data(), 1, header.size(), file) == header.size();
  for (const NamedTensor& tensor : tensors) {
    good =
        good && std::fwrite(tensor.values.data(), sizeof(float),
                            tensor.values.size(), file) == tensor.values.size();
  }
  const int error = errno;
  if (std::fclose(file) != 0) return FileError(errno, "write", path);
  return good ? absl::OkStatus() : FileError(error, "write", path);
}

}  // namespace syncline::worker
