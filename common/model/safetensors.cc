#include "common/model/safetensors.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/element_type.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/job/strict_json.h"
#include "common/model/graph/describe.h"
#include "common/system/file.h"

namespace syncline {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr char kMetadata[] = "__metadata__";
// How files of torch.save begin: a zip archive, or a pickled number. No
// safetensors file does: its header would be too long.
constexpr absl::string_view kOfTorchSave[] = {
    "PK\x03\x04", "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46"};
// Numbers of JSON are exact up to there.
constexpr double kExactMax = 9007199254740992.0;  // 2^53
constexpr size_t kReadFloats = 1 << 18;
// Of the header: about 200,000 tensors have as many.
constexpr size_t kValuesMax = 1'500'000;
// As the rules of start.names (common/job/name_rule.h).
constexpr size_t kNameBytesMax = 1024;

struct Type {
  absl::string_view name;
  uint64_t bytes;
  std::optional<ElementType> element = std::nullopt;
};
constexpr Type kTypes[] = {
    {"F32", 4, ElementType::kFloat32},
    {"F16", 2, ElementType::kFloat16},
    {"BF16", 2, ElementType::kBfloat16},
    {"F64", 8},
    {"I64", 8},
    {"I32", 4},
    {"I16", 2},
    {"I8", 1},
    {"U64", 8},
    {"U32", 4},
    {"U16", 2},
    {"U8", 1},
    {"BOOL", 1},
    {"F8_E4M3", 1},
    {"F8_E5M2", 1},
};

const Type* FindType(absl::string_view name) {
  for (const Type& type : kTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(
      absl::StrCat("not a safetensors file: ", parts...));
}

// A whole number that JSON writes exactly; none: it is something else.
std::optional<uint64_t> WholeNumber(const google::protobuf::Value& value) {
  if (value.kind_case() != google::protobuf::Value::kNumberValue) {
    return std::nullopt;
  }
  const double number = value.number_value();
  // Negated, so that NaN is out of it.
  if (!(number >= 0 && number <= kExactMax) || std::floor(number) != number) {
    return std::nullopt;
  }
  return static_cast<uint64_t>(number);
}

const google::protobuf::Value* Field(const google::protobuf::Value& object,
                                     const char* name) {
  const auto& fields = object.struct_value().fields();
  const auto it = fields.find(name);
  return it == fields.end() ? nullptr : &it->second;
}

bool IsOfSyncline(const google::protobuf::Value& header) {
  const google::protobuf::Value* const metadata = Field(header, kMetadata);
  if (metadata == nullptr || !metadata->has_struct_value()) return false;
  const google::protobuf::Value* const writer =
      Field(*metadata, kSafetensorsWriter);
  return writer != nullptr &&
         writer->string_value() == kSafetensorsWriterIsSyncline;
}

absl::Status ReadDims(const google::protobuf::Value* shape,
                      absl::string_view name, Dims* dims) {
  if (shape == nullptr || !shape->has_list_value()) {
    return Bad("tensor ", Quote(name), " has no \"shape\"");
  }
  if (shape->list_value().values_size() > kRankMax) {
    return Bad("tensor ", Quote(name), " has ",
               shape->list_value().values_size(), " dimensions, at most ",
               kRankMax);
  }
  for (const google::protobuf::Value& value : shape->list_value().values()) {
    const std::optional<uint64_t> dim = WholeNumber(value);
    if (!dim.has_value()) {
      return Bad("the shape of tensor ", Quote(name), " is not of numbers");
    }
    dims->push_back(static_cast<int64_t>(*dim));
  }
  if (!WithinLimits(*dims)) {
    return Bad("tensor ", Quote(name), " is ", DimsToString(*dims),
               ", which is too large");
  }
  return absl::OkStatus();
}

absl::StatusOr<FileTensor> ReadEntry(absl::string_view name,
                                     const google::protobuf::Value& entry) {
  if (name.size() > kNameBytesMax) {
    return Bad("a tensor's name has ", name.size(), " bytes, at most ",
               kNameBytesMax);
  }
  if (!entry.has_struct_value()) {
    return Bad("tensor ", Quote(name), " is not an object");
  }
  FileTensor tensor;
  tensor.name = std::string(name);
  const google::protobuf::Value* const dtype = Field(entry, "dtype");
  if (dtype == nullptr ||
      dtype->kind_case() != google::protobuf::Value::kStringValue) {
    return Bad("tensor ", Quote(name), " has no \"dtype\"");
  }
  tensor.dtype = dtype->string_value();
  const Type* const type = FindType(tensor.dtype);
  if (type == nullptr) {
    return Bad("tensor ", Quote(name), " has the type ", Quote(tensor.dtype),
               ", which is not known");
  }
  tensor.is_float = type->element.has_value();
  SYNCLINE_RETURN_IF_ERROR(ReadDims(Field(entry, "shape"), name, &tensor.dims));
  const google::protobuf::Value* const place = Field(entry, "data_offsets");
  if (place == nullptr || !place->has_list_value() ||
      place->list_value().values_size() != 2) {
    return Bad("tensor ", Quote(name), " has no \"data_offsets\"");
  }
  const auto begin = WholeNumber(place->list_value().values(0));
  const auto end = WholeNumber(place->list_value().values(1));
  if (!begin.has_value() || !end.has_value() || *end < *begin) {
    return Bad("the \"data_offsets\" of tensor ", Quote(name),
               " are not two ascending numbers");
  }
  tensor.begin = *begin;
  tensor.bytes = *end - *begin;
  const uint64_t needed =
      static_cast<uint64_t>(ElementCount(tensor.dims)) * type->bytes;
  if (tensor.bytes != needed) {
    return Bad("tensor ", Quote(name), " is ", tensor.dtype,
               DimsToString(tensor.dims), ", which is ", needed,
               " bytes, and its place has ", tensor.bytes);
  }
  return tensor;
}

// In the order of their values; they fill the file from `values_at` on.
absl::Status CheckPlaces(uint64_t values_at, uint64_t file_bytes,
                         std::vector<FileTensor>* tensors) {
  std::sort(tensors->begin(), tensors->end(),
            [](const FileTensor& a, const FileTensor& b) {
              return std::tie(a.begin, a.bytes, a.name) <
                     std::tie(b.begin, b.bytes, b.name);
            });
  const uint64_t value_bytes = file_bytes - values_at;
  uint64_t at = 0;
  for (FileTensor& tensor : *tensors) {
    if (tensor.begin != at) {
      return Bad("tensor ", Quote(tensor.name), " begins at byte ",
                 tensor.begin, " of the values, the one before it ends at ", at,
                 tensor.begin < at ? ": they overlap" : ": a gap");
    }
    at += tensor.bytes;
    tensor.begin += values_at;
  }
  if (at == value_bytes) return absl::OkStatus();
  return Bad("its tensors have ", at, " bytes, the file has ", value_bytes,
             at > value_bytes ? ": it is cut off" : ": something follows");
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

absl::StatusOr<File> OpenAt(const std::string& path, uint64_t at) {
  File file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return FileError(errno, "read", path);
  if (fseeko(file.get(), static_cast<off_t>(at), SEEK_SET) != 0) {
    return FileError(errno, "read", path);
  }
  return file;
}

}  // namespace

absl::StatusOr<std::vector<FileTensor>> ParseSafetensors(
    absl::string_view bytes, uint64_t file_bytes) {
  for (const absl::string_view begin : kOfTorchSave) {
    if (!absl::StartsWith(bytes, begin)) continue;
    return Bad("it is one of torch.save, which only Python can read; load it ",
               "there, and write the state_dict with ",
               "safetensors.torch.save_file(state_dict, \"",
               "weights.safetensors\")");
  }
  if (bytes.size() < kLengthBytes || file_bytes < bytes.size()) {
    return Bad("it has ", bytes.size(), " bytes");
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > kSafetensorsHeaderMax) {
    return Bad("its header would have ", length, " bytes, at most ",
               kSafetensorsHeaderMax, " are read");
  }
  if (length > bytes.size() - kLengthBytes) {
    return Bad("its header would have ", length, " bytes, and ",
               bytes.size() - kLengthBytes, " follow");
  }
  const absl::string_view header = bytes.substr(kLengthBytes, length);
  if (header.empty() || header[0] != '{') {
    return Bad("its header does not begin with '{'");
  }
  if (!IsUtf8(header)) return Bad("its header is not UTF-8");
  const auto json = ParseStrictJson(header, {.bytes_max = kSafetensorsHeaderMax,
                                             .depth_max = 4,
                                             .values_max = kValuesMax});
  if (!json.ok()) {
    return Bad("its header, ", json.status().message());
  }
  const bool is_of_syncline = IsOfSyncline(*json);
  std::vector<FileTensor> tensors;
  for (const auto& [name, entry] : json->struct_value().fields()) {
    if (name == kMetadata) continue;
    SYNCLINE_ASSIGN_OR_RETURN(FileTensor tensor, ReadEntry(name, entry));
    tensor.is_of_syncline = is_of_syncline;
    tensors.push_back(std::move(tensor));
  }
  SYNCLINE_RETURN_IF_ERROR(
      CheckPlaces(kLengthBytes + length, file_bytes, &tensors));
  return tensors;
}

absl::StatusOr<std::vector<FileTensor>> ReadSafetensors(
    const std::string& path) {
  SYNCLINE_ASSIGN_OR_RETURN(const uint64_t file_bytes, FileSize(path));
  SYNCLINE_ASSIGN_OR_RETURN(const File file, OpenAt(path, 0));
  std::string bytes(kLengthBytes, '\0');
  bytes.resize(std::fread(bytes.data(), 1, kLengthBytes, file.get()));
  if (bytes.size() == kLengthBytes) {
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof(length));
    // A header that is too long is refused below, without reading a byte of it.
    if (length <= kSafetensorsHeaderMax) {
      const uint64_t wanted =
          std::min(length, file_bytes - std::min(file_bytes, kLengthBytes));
      bytes.resize(kLengthBytes + wanted);
      const size_t read =
          std::fread(bytes.data() + kLengthBytes, 1, wanted, file.get());
      bytes.resize(kLengthBytes + read);
    }
  }
  if (std::ferror(file.get()) != 0) return FileError(errno, "read", path);
  auto tensors =
      ParseSafetensors(bytes, std::max<uint64_t>(file_bytes, bytes.size()));
  return tensors.ok() ? std::move(tensors) : Annotate(tensors.status(), path);
}

absl::Status ReadFileTensor(const std::string& path, const FileTensor& tensor,
                            absl::Span<float> values) {
  const ElementType type = *FindType(tensor.dtype)->element;
  SYNCLINE_ASSIGN_OR_RETURN(const File file, OpenAt(path, tensor.begin));
  std::string piece;
  for (size_t at = 0; at < values.size();) {
    const size_t count = std::min(kReadFloats, values.size() - at);
    piece.resize(count * ElementBytes(type));
    if (std::fread(piece.data(), 1, piece.size(), file.get()) != piece.size()) {
      if (std::ferror(file.get()) != 0) return FileError(errno, "read", path);
      return absl::DataLossError(
          absl::StrCat(path, ": it ends within tensor ", Quote(tensor.name)));
    }
    Widen(type, piece.data(), values.data() + at, count);
    for (size_t i = at; i < at + count; ++i) {
      if (std::isfinite(values[i])) continue;
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": element ", i, " of tensor ", Quote(tensor.name),
                       " is ", values[i]));
    }
    at += count;
  }
  return absl::OkStatus();
}

}  // namespace syncline
