#include "common/model/import/export_record.h"

#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
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
constexpr int kMetadataOfNode = 9;
constexpr int kMetadataOfGraph = 16;

constexpr absl::string_view kKindKey =
    "pkg.torch.export.graph_signature.InputSpec.kind";
constexpr absl::string_view kSignatureKey =
    "pkg.torch.export.ExportedProgram.graph_signature";
constexpr absl::string_view kCallKey = "pkg.torch.onnx.fx_node";
constexpr absl::string_view kTraceKey = "pkg.torch.onnx.stack_trace";
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

// "model.py, line 12" of the trace's first line, which is the model's own:
// 'File "/home/me/model.py", line 12, in forward'. Nothing: it has no file.
std::string PlaceIn(absl::string_view trace) {
  const absl::string_view line = trace.substr(0, trace.find('\n'));
  const std::optional<std::string> file = QuotedAfter(line, "File ");
  constexpr absl::string_view kLine = ", line ";
  const size_t at = line.find(kLine);
  if (!file.has_value() || at == absl::string_view::npos) return "";
  const absl::string_view rest = line.substr(at + kLine.size());
  const absl::string_view number = rest.substr(0, rest.find(','));
  int64_t value = 0;
  if (!absl::SimpleAtoi(number, &value)) return "";
  return absl::StrCat(file->substr(file->rfind('/') + 1), ", line ", value);
}

// PyTorch takes such a block for a module of its own and, when it puts it back
// in place, gives it a name instead of a file.
bool IsInBlock(absl::string_view trace) {
  return absl::StrContains(trace.substr(0, trace.find('\n')),
                           "<eval_with_key>");
}

bool IsDetach(absl::string_view call) {
  return absl::StrContains(call, "torch.ops.aten.detach.") ||
         absl::StrContains(call, "torch.ops.aten.detach_.") ||
         absl::StrContains(call, "torch.ops.aten.detach_copy.");
}

// Of "...aten.embedding.default](args = (%table, %ids, 0, False, True), ...":
// the arguments, of which the third is padding_idx and the fourth
// scale_grad_by_freq. Of another call: none.
std::vector<absl::string_view> EmbeddingArguments(absl::string_view call) {
  constexpr absl::string_view kCall = "aten.embedding.default](args = (";
  const size_t at = call.find(kCall);
  if (at == absl::string_view::npos) return {};
  call.remove_prefix(at + kCall.size());
  return absl::StrSplit(call.substr(0, call.find(')')), ", ");
}

void ReadNodes(const onnx::GraphProto& graph, ExportRecord* record) {
  std::string place;  // the last that was said
  for (const onnx::NodeProto& node : graph.node()) {
    if (node.output_size() == 0) continue;
    const auto find = [&](absl::string_view key) {
      return FindEntry(node.unknown_fields(), kMetadataOfNode, key)
          .value_or("");
    };
    const std::string trace = find(kTraceKey);
    const std::string call = find(kCallKey);
    const bool in_block = IsInBlock(trace);
    if (in_block) record->in_blocks.push_back({node.output(0), place});
    const std::string here = in_block ? "" : PlaceIn(trace);
    if (!here.empty()) place = here;
    if (IsDetach(call)) record->detached.push_back({node.output(0), here});
    const auto arguments = EmbeddingArguments(call);
    int64_t row = -1;
    if (arguments.size() > 2 && absl::SimpleAtoi(arguments[2], &row) &&
        row >= 0) {
      record->padding_rows.emplace(node.output(0), row);
    }
    if (arguments.size() > 3 && arguments[3] == "True") {
      record->scaled_by_frequency.push_back({node.output(0), here});
    }
  }
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
  // Some files list initializers among the inputs.
  for (const auto& info : file.graph().input()) read(info);
  ReadNodes(file.graph(), &record);
  if (const auto signature = FindSignature(file)) {
    record.parameters = ParametersIn(*signature);
  }
  return record;
}

}  // namespace syncline
