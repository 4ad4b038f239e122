#include "common/model/export_record.h"

#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "google/protobuf/unknown_field_set.h"
#include "onnx/onnx_pb.h"

namespace syncline {
namespace {

using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

// Fields of ONNX's newer than libonnx 1.12: repeated StringStringEntryProto
// metadata_props.
constexpr int kMetadataOfValueInfo = 4;
constexpr int kMetadataOfGraph = 16;

constexpr absl::string_view kKindKey =
    "pkg.torch.export.graph_signature.InputSpec.kind";
constexpr absl::string_view kSignatureKey =
    "pkg.torch.export.ExportedProgram.graph_signature";
constexpr absl::string_view kProducer = "pytorch";

std::optional<std::string> FindEntry(const UnknownFieldSet& fields,
                                     int metadata_field,
                                     absl::string_view key) {
  for (int i = 0; i < fields.field_count(); ++i) {
    const UnknownField& field = fields.field(i);
    if (field.number() != metadata_field ||
        field.type() != UnknownField::TYPE_LENGTH_DELIMITED) {
      continue;
    }
    onnx::StringStringEntryProto entry;
    if (entry.ParseFromString(field.length_delimited()) && entry.key() == key) {
      return std::move(*entry.mutable_value());
    }
  }
  return std::nullopt;
}

ExportRecord::Kind KindNamed(absl::string_view name) {
  if (name == "PARAMETER") return ExportRecord::Kind::kParameter;
  if (name == "BUFFER") return ExportRecord::Kind::kBuffer;
  return ExportRecord::Kind::kConstant;
}

std::optional<std::string> FindSignature(const onnx::ModelProto& file) {
  for (const auto& entry : file.metadata_props()) {
    if (entry.key() == kSignatureKey) return entry.value();
  }
  return FindEntry(file.graph().unknown_fields(), kMetadataOfGraph,
                   kSignatureKey);
}

// The text between the quotes after `key` in `line`.
std::optional<std::string> QuotedAfter(absl::string_view line,
                                       absl::string_view key) {
  const size_t begin = line.find(key);
  if (begin == absl::string_view::npos) return std::nullopt;
  line.remove_prefix(begin + key.size());
  if (line.empty() || (line[0] != '\'' && line[0] != '"')) return std::nullopt;
  const size_t end = line.find(line[0], 1);
  if (end == absl::string_view::npos) return std::nullopt;
  return std::string(line.substr(1, end - 1));
}

// A line for each: "p_fc_weight: PARAMETER target='fc.weight'"; before PyTorch
// 2.7 all in one: "InputSpec(kind=<InputKind.PARAMETER: 2>, ...,
// target='fc.weight', persistent=None), ...".
std::vector<std::string> ParametersIn(absl::string_view signature) {
  std::vector<std::string> names;
  for (absl::string_view line : absl::StrSplit(signature, '\n')) {
    if (!absl::StrContains(line, ": PARAMETER target=")) continue;
    if (auto name = QuotedAfter(line, " target=")) {
      names.push_back(*std::move(name));
    }
  }
  constexpr absl::string_view kSpec = "InputSpec(kind=<InputKind.PARAMETER";
  const std::vector<absl::string_view> specs = absl::StrSplit(signature, kSpec);
  for (size_t i = 1; i < specs.size(); ++i) {
    const absl::string_view spec = specs[i].substr(0, specs[i].find("Spec("));
    if (auto name = QuotedAfter(spec, "target=")) {
      names.push_back(*std::move(name));
    }
  }
  return names;
}

}  // namespace

ExportRecord::Kind ExportRecord::KindOf(absl::string_view name) const {
  const auto it = kinds.find(name);
  return it == kinds.end() ? Kind::kUnknown : it->second;
}

bool ExportRecord::says_kinds() const {
  return absl::c_any_of(kinds, [](const auto& entry) {
    return entry.second == Kind::kParameter;
  });
}

ExportRecord ReadExportRecord(const onnx::ModelProto& file) {
  ExportRecord record;
  record.is_pytorch = file.producer_name() == kProducer;
  const auto read = [&](const onnx::ValueInfoProto& info) {
    const auto kind =
        FindEntry(info.unknown_fields(), kMetadataOfValueInfo, kKindKey);
    if (kind.has_value()) record.kinds.emplace(info.name(), KindNamed(*kind));
  };
  for (const auto& info : file.graph().value_info()) read(info);
  // Where initializers are listed among the inputs.
  for (const auto& info : file.graph().input()) read(info);
  if (const auto signature = FindSignature(file)) {
    record.parameters = ParametersIn(*signature);
  }
  return record;
}

}  // namespace syncline
