#include "common/model/graph/onnx_bytes.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/model/graph/describe.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/wire_format_lite.h"
#include "onnx/onnx_pb.h"

namespace syncline {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using WireFormat = google::protobuf::internal::WireFormatLite;

// As deep as protobuf reads.
constexpr int kDepthMax = 100;
// Of text, what tells whether it is any.
constexpr size_t kBytesLookedAt = 512;
constexpr size_t kBytesShown = 40;

struct Format {
  size_t at;
  absl::string_view magic;
  absl::string_view name;
};

constexpr absl::string_view kExportIt =
    "; export the model with torch.onnx.export";

constexpr Format kFormats[] = {
    {0, "PK\x03\x04", "a zip archive, as torch.save writes .pt files"},
    {0, "PK\x05\x06", "an empty zip archive"},
    {0, "\x80\x02", "a Python pickle, as torch.save writes .pt files"},
    {0, "\x80\x04", "a Python pickle"},
    {0, "\x80\x05", "a Python pickle"},
    {0, "\x89HDF\r\n", "an HDF5 file, as Keras writes .h5 files"},
    {4, "TFL3", "a TensorFlow Lite model"},
    {0, "\x93NUMPY", "a NumPy array"},
    {0, "\x89PNG\r\n", "a PNG picture"},
    {0, "\xff\xd8\xff", "a JPEG picture"},
    {0, "GIF8", "a GIF picture"},
    {0, "%PDF", "a PDF document"},
    {0, "\x1f\x8b", "a gzip archive; unpack it"},
    {0,
     "\x7f"
     "ELF",
     "a program"},
    {0, "<!DOCTYPE", "a web page"},
    {0, "<html", "a web page"},
    {0, "<?xml", "an XML document"},
    {0, "version https://git-lfs",
     "a Git LFS pointer in place of the file; fetch it with git lfs pull"},
};

// Eight bytes of length, then JSON.
bool IsSafetensors(absl::string_view bytes) {
  return bytes.size() > 9 && bytes[8] == '{' && bytes[6] == '\0' &&
         bytes[7] == '\0';
}

bool IsModel(absl::string_view name) {
  return absl::StrContains(name, "torch") || absl::StrContains(name, "Keras") ||
         absl::StrContains(name, "pickle") ||
         absl::StrContains(name, "TensorFlow") ||
         absl::StrContains(name, "safetensors");
}

bool IsPrintable(absl::string_view bytes) {
  const absl::string_view head = bytes.substr(0, kBytesLookedAt);
  return std::all_of(head.begin(), head.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x80 || absl::ascii_isprint(byte) ||
           absl::ascii_isspace(byte);
  });
}

// Line and column of the first character that is neither space nor comment,
// and what is there.
std::string DescribeText(absl::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const auto c = static_cast<unsigned char>(text[at]);
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (absl::ascii_isspace(c)) {
      ++at;
    } else {
      break;
    }
  }
  const absl::string_view before = text.substr(0, at);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t newline = before.rfind('\n');
  const size_t column =
      newline == absl::string_view::npos ? at + 1 : at - newline;
  const std::string place = absl::StrCat(line, ":", column, ": ");
  if (at == text.size()) {
    return absl::StrCat(place, "not ONNX: text with comments alone");
  }
  const absl::string_view rest = text.substr(at);
  const size_t shown = std::min(rest.find('\n'), kBytesShown);
  return absl::StrCat(place, "not ONNX: ONNX text begins with '<', as in ",
                      "<ir_version: 8, opset_import: [\"\" : 17]>, not with ",
                      Quote(rest.substr(0, shown)));
}

// Reads protobuf's wire format along a message's description, until it breaks.
class WireReader {
 public:
  explicit WireReader(absl::string_view bytes) : bytes_(bytes) {}

  // Returns the problem; empty: there is none.
  std::string Read(const Descriptor* message, size_t end, int depth = 0) {
    if (depth > kDepthMax) {
      return absl::StrCat("messages nest deeper than ", kDepthMax, " at byte ",
                          at_);
    }
    while (at_ < end) {
      const size_t begin = at_;
      const std::optional<uint64_t> tag = Varint(end);
      const uint64_t number = tag.value_or(0) >> 3;
      if (!tag.has_value() || number == 0 || number > kNumberMax) {
        return absl::StrCat("no field begins at byte ", begin);
      }
      const FieldDescriptor* const field =
          message->FindFieldByNumber(static_cast<int>(number));
      if (depth == 0 && field != nullptr) ++known_fields_;
      const std::string problem = ReadField(
          field, number, static_cast<int>(*tag & 7), begin, end, depth);
      if (!problem.empty()) return problem;
    }
    return "";
  }

  // At the top.
  int known_fields() const { return known_fields_; }

 private:
  static constexpr uint64_t kNumberMax = (uint64_t{1} << 29) - 1;

  std::optional<uint64_t> Varint(size_t end) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && at_ < end; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  std::string ReadField(const FieldDescriptor* field, uint64_t number,
                        int wire_type, size_t begin, size_t end, int depth) {
    const std::string name =
        field == nullptr ? absl::StrCat("field ", number) : field->name();
    uint64_t length = 0;
    switch (wire_type) {
      case WireFormat::WIRETYPE_VARINT:
        if (Varint(end).has_value()) return "";
        return CutOff(name, begin, end);
      case WireFormat::WIRETYPE_FIXED64:
        length = 8;
        break;
      case WireFormat::WIRETYPE_FIXED32:
        length = 4;
        break;
      case WireFormat::WIRETYPE_LENGTH_DELIMITED: {
        const std::optional<uint64_t> given = Varint(end);
        if (!given.has_value()) return CutOff(name, begin, end);
        length = *given;
        break;
      }
      default:
        return absl::StrCat("no field begins at byte ", begin);
    }
    if (length > end - at_) {
      return absl::StrCat("the ", name, " at byte ", begin, " has ", length,
                          " bytes, but only ", end - at_, " follow",
                          end == bytes_.size() ? " before the file ends" : "");
    }
    if (wire_type == WireFormat::WIRETYPE_LENGTH_DELIMITED &&
        field != nullptr && field->message_type() != nullptr) {
      return Read(field->message_type(), at_ + length, depth + 1);
    }
    at_ += length;
    return "";
  }

  std::string CutOff(const std::string& name, size_t begin, size_t end) const {
    return absl::StrCat("the ", name, " at byte ", begin,
                        " is cut off at byte ", end);
  }

  const absl::string_view bytes_;
  size_t at_ = 0;
  int known_fields_ = 0;
};

}  // namespace

std::string DescribeOtherFormat(absl::string_view bytes) {
  for (const Format& format : kFormats) {
    if (!absl::StartsWith(bytes.substr(std::min(format.at, bytes.size())),
                          format.magic)) {
      continue;
    }
    return absl::StrCat("not ONNX: ", format.name,
                        IsModel(format.name) ? kExportIt : "");
  }
  if (IsSafetensors(bytes)) {
    return absl::StrCat("not ONNX: a safetensors file, which has weights alone",
                        kExportIt);
  }
  return "";
}

std::string DescribeBrokenBytes(absl::string_view bytes) {
  // A model's first field is its IR version, as a rule.
  const bool begins_as_binary = !bytes.empty() && bytes[0] == '\x08';
  if (!begins_as_binary && IsPrintable(bytes)) return DescribeText(bytes);
  WireReader reader(bytes);
  const std::string problem =
      reader.Read(onnx::ModelProto::descriptor(), bytes.size());
  // Bytes of anything else may look like a field or two.
  const bool begins_with_graph = !bytes.empty() && bytes[0] == '\x3a';
  if (!begins_as_binary && !begins_with_graph && reader.known_fields() < 2) {
    return absl::StrCat(
        "not ONNX: neither ONNX binary nor ONNX text; it begins with ",
        Quote(bytes.substr(0, std::min<size_t>(bytes.size(), 8))));
  }
  if (problem.empty()) return "not ONNX: it has neither a graph nor a version";
  return absl::StrCat("truncated or damaged ONNX: ", problem);
}

}  // namespace syncline
