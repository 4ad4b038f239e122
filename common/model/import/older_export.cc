#include "common/model/import/older_export.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/model/graph/describe.h"
#include "common/model/graph/operator_list.h"
#include "common/model/graph/schemas.h"
#include "onnx/onnx_pb.h"

namespace syncline {
namespace {

constexpr absl::string_view kProducer = "pytorch";
// The name of a value that the exporter made itself begins so: "onnx::Conv_45".
constexpr absl::string_view kMadeByExporter = "onnx::";
constexpr size_t kNamesShown = 4;
// Parameters that are equal before training are zeros and ones, a vector each.
constexpr uint64_t kPartedBytesMax = uint64_t{1} << 28;
// Different weights differ in one of their first elements.
constexpr int64_t kComparedMax = int64_t{1} << 32;

bool IsAllDigits(absl::string_view text) {
  return !text.empty() && absl::c_all_of(text, absl::ascii_isdigit);
}

// "features.0.bias"; values that nodes compute are "/features/Conv_output_0",
// "onnx::Conv_45" or "45".
bool IsParameterName(absl::string_view name) {
  return !name.empty() && name[0] != '/' &&
         !absl::StartsWith(name, kMadeByExporter) && !IsAllDigits(name);
}

// The exporter's own: "Identity_70".
bool IsExportersIdentity(const onnx::NodeProto& node) {
  absl::string_view name = node.name();
  return node.op_type() == "Identity" && node.domain().empty() &&
         node.input_size() == 1 && node.output_size() == 1 &&
         absl::ConsumePrefix(&name, "Identity_") && IsAllDigits(name);
}

// float32 with its content in the file.
bool IsPlainFloat(const onnx::TensorProto& tensor) {
  return tensor.data_type() == onnx::TensorProto::FLOAT &&
         tensor.data_location() != onnx::TensorProto::EXTERNAL;
}

bool IsSingleNumber(const onnx::TensorProto& tensor) {
  return absl::c_all_of(tensor.dims(), [](int64_t dim) { return dim == 1; });
}

const onnx::TensorProto* FindMergedInto(
    const onnx::NodeProto& node,
    const absl::flat_hash_map<absl::string_view, const onnx::TensorProto*>&
        initializers,
    const absl::flat_hash_set<absl::string_view>& results) {
  if (!IsExportersIdentity(node)) return nullptr;
  const auto it = initializers.find(node.input(0));
  const bool is_parameter =
      it != initializers.end() && IsPlainFloat(*it->second) &&
      IsParameterName(node.input(0)) && IsParameterName(node.output(0)) &&
      !initializers.contains(node.output(0)) &&
      !results.contains(node.output(0));
  return is_parameter ? it->second : nullptr;
}

absl::flat_hash_map<absl::string_view, const onnx::TensorProto*>
InitializersByName(const onnx::GraphProto& graph) {
  absl::flat_hash_map<absl::string_view, const onnx::TensorProto*> by_name;
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    by_name.emplace(tensor.name(), &tensor);
  }
  return by_name;
}

std::string JoinNames(std::vector<std::string> names) {
  if (names.size() > kNamesShown) {
    names.resize(kNamesShown);
    names.push_back("...");
  }
  return absl::StrJoin(names, ", ");
}

// Of "onnx::Conv_45", the operator that reads it: "Conv".
absl::string_view ReaderIn(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, kMadeByExporter)) return "";
  return name.substr(0, name.rfind('_'));
}

// Values that nodes read, and only where an operator has no gradient: the
// scales of Resize, the two values of OneHot.
absl::flat_hash_set<absl::string_view> SettingsOf(
    const onnx::GraphProto& graph) {
  absl::flat_hash_set<absl::string_view> settings, computed_with;
  for (const onnx::NodeProto& node : graph.node()) {
    if (IsExportersIdentity(node)) continue;
    const OperatorInfo* const op = FindOperator(node.op_type());
    for (int i = 0; i < node.input_size(); ++i) {
      const bool is_setting =
          op != nullptr && !HasPosition(op->gradient_inputs, i);
      (is_setting ? settings : computed_with).insert(node.input(i));
    }
  }
  for (const onnx::NodeProto& node : graph.node()) {
    if (!IsExportersIdentity(node)) continue;
    const bool is_setting = settings.contains(node.output(0)) &&
                            !computed_with.contains(node.output(0));
    (is_setting ? settings : computed_with).insert(node.input(0));
  }
  for (const absl::string_view name : computed_with) settings.erase(name);
  return settings;
}

// Weights that the exporter computed from parameters or constants and stored in
// their place. These operators' weights it only transposes, reorders or
// reshapes, and they train as the originals do.
std::vector<std::string> FoldedWeights(const onnx::GraphProto& graph) {
  constexpr absl::string_view kOnlyMoved[] = {"GRU", "LSTM", "MatMul", "PRelu",
                                              "RNN"};
  constexpr absl::string_view kOfAnySize[] = {"Conv", "ConvTranspose", "Gemm"};
  const auto settings = SettingsOf(graph);
  std::vector<std::string> names;
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    const absl::string_view reader = ReaderIn(tensor.name());
    if (reader.empty() || !IsPlainFloat(tensor) ||
        settings.contains(tensor.name()) ||
        absl::c_linear_search(kOnlyMoved, reader)) {
      continue;
    }
    if (IsSingleNumber(tensor) && !absl::c_linear_search(kOfAnySize, reader)) {
      continue;
    }
    names.push_back(Quote(tensor.name()));
  }
  return names;
}

// 4 bytes each, as they are in the file; empty: they are elsewhere or differ in
// number from what the dimensions say.
absl::string_view MatrixBytes(const onnx::TensorProto& tensor) {
  if (!IsPlainFloat(tensor) || tensor.dims_size() != 2) return "";
  const uint64_t rows = tensor.dims(0), columns = tensor.dims(1);
  const uint64_t count = tensor.raw_data().size() / sizeof(float);
  if (rows == 0 || columns == 0 || rows > count || columns > count ||
      rows * columns != count ||
      tensor.raw_data().size() != count * sizeof(float)) {
    return "";
  }
  return tensor.raw_data();
}

// Takes the number of elements that it compares from *budget, and finds nothing
// when there is none left. A matrix of equal numbers counts as no transpose.
bool IsTransposeOf(const onnx::TensorProto& a, const onnx::TensorProto& b,
                   int64_t* budget) {
  const absl::string_view x = MatrixBytes(a), y = MatrixBytes(b);
  if (x.empty() || y.empty() || a.dims(0) != b.dims(1) ||
      a.dims(1) != b.dims(0)) {
    return false;
  }
  const size_t rows = a.dims(0), columns = a.dims(1);
  const auto same = [](const char* left, const char* right) {
    return std::memcmp(left, right, sizeof(float)) == 0;
  };
  bool varies = false;
  for (size_t i = 0; i < rows * columns; ++i) {
    if (--*budget < 0) return false;
    const size_t turned = (i % columns) * rows + i / columns;
    const char* const element = x.data() + i * sizeof(float);
    if (!same(element, y.data() + turned * sizeof(float))) return false;
    varies |= !same(element, x.data());
  }
  return varies;
}

// Weights that a MatMul has the transpose of as a parameter of its own.
std::vector<std::string> UntiedWeights(const onnx::GraphProto& graph) {
  std::vector<const onnx::TensorProto*> made, named;
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    if (absl::StartsWith(tensor.name(), "onnx::MatMul_")) {
      made.push_back(&tensor);
    } else if (IsParameterName(tensor.name())) {
      named.push_back(&tensor);
    }
  }
  std::vector<std::string> names;
  int64_t budget = kComparedMax;
  for (const onnx::TensorProto* const tensor : named) {
    for (const onnx::TensorProto* const transpose : made) {
      if (!IsTransposeOf(*tensor, *transpose, &budget)) continue;
      names.push_back(absl::StrCat(Quote(tensor->name()), " and ",
                                   Quote(transpose->name())));
      break;
    }
  }
  return names;
}

// Weights that the exporter made and then merged: of the same parameter twice,
// which the model ties, or of different ones that are equal. Nothing says
// which.
std::vector<std::string> MergedWeights(const onnx::GraphProto& graph) {
  const auto initializers = InitializersByName(graph);
  const auto settings = SettingsOf(graph);
  std::vector<std::string> names;
  for (const onnx::NodeProto& node : graph.node()) {
    if (!IsExportersIdentity(node) || settings.contains(node.output(0)) ||
        !absl::StartsWith(node.output(0), kMadeByExporter)) {
      continue;
    }
    const auto it = initializers.find(node.input(0));
    if (it == initializers.end() || !IsPlainFloat(*it->second) ||
        IsSingleNumber(*it->second)) {
      continue;
    }
    names.push_back(
        absl::StrCat(Quote(node.input(0)), " and ", Quote(node.output(0))));
  }
  return names;
}

// False: its elements are all the same, or are not to be had.
bool Varies(const onnx::TensorProto& tensor) {
  const std::string& bytes = tensor.raw_data();
  return bytes.size() > sizeof(float) && bytes.size() % sizeof(float) == 0 &&
         std::memcmp(bytes.data(), bytes.data() + sizeof(float),
                     bytes.size() - sizeof(float)) != 0;
}

// Weights of recurrent layers that are in the file twice: of a parameter that
// the model has once and uses in several places, or of several that are equal.
// Nothing says which.
std::vector<std::string> DoubledWeights(const onnx::GraphProto& graph) {
  constexpr absl::string_view kRecurrent[] = {"GRU", "LSTM", "RNN"};
  absl::flat_hash_map<absl::string_view, std::vector<const onnx::TensorProto*>>
      by_bytes;
  std::vector<std::string> names;
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    // Biases have two dimensions, and may begin alike.
    if (!absl::c_linear_search(kRecurrent, ReaderIn(tensor.name())) ||
        tensor.dims_size() != 3 || !IsPlainFloat(tensor) || !Varies(tensor)) {
      continue;
    }
    auto& equal = by_bytes[tensor.raw_data()];
    for (const onnx::TensorProto* const other : equal) {
      if (!absl::c_equal(other->dims(), tensor.dims())) continue;
      names.push_back(
          absl::StrCat(Quote(other->name()), " and ", Quote(tensor.name())));
      break;
    }
    equal.push_back(&tensor);
  }
  return names;
}

}  // namespace

void PartMergedParameters(onnx::ModelProto* file,
                          std::vector<std::string>* problems) {
  if (file->producer_name() != kProducer || !file->has_graph()) return;
  onnx::GraphProto* const graph = file->mutable_graph();
  absl::flat_hash_set<absl::string_view> results;
  for (const auto& output : graph->output()) results.insert(output.name());
  const auto initializers = InitializersByName(*graph);
  // By the name that is to have it again.
  std::vector<std::pair<std::string, const onnx::TensorProto*>> parted;
  absl::flat_hash_set<const onnx::NodeProto*> replaced;
  absl::flat_hash_set<absl::string_view> names;
  uint64_t bytes = 0;
  for (const onnx::NodeProto& node : graph->node()) {
    const onnx::TensorProto* const kept =
        FindMergedInto(node, initializers, results);
    if (kept == nullptr || !names.insert(node.output(0)).second) continue;
    bytes += kept->ByteSizeLong();
    if (bytes > kPartedBytesMax) {
      problems->push_back(
          absl::StrCat("the exporter merged equal parameters of more than ",
                       kPartedBytesMax >> 20, " MiB, ", Quote(node.output(0)),
                       " among them; export the model with "
                       "training=torch.onnx.TrainingMode.TRAINING"));
      return;
    }
    replaced.insert(&node);
    parted.emplace_back(node.output(0), kept);
  }
  if (parted.empty()) return;
  auto* const nodes = graph->mutable_node();
  // Moving nodes would change the addresses; they are marked first.
  std::vector<bool> drop;
  for (const onnx::NodeProto& node : *nodes) {
    drop.push_back(replaced.contains(&node));
  }
  google::protobuf::RepeatedPtrField<onnx::NodeProto> all;
  all.Swap(nodes);
  for (int i = 0; i < all.size(); ++i) {
    if (!drop[i]) *nodes->Add() = std::move(all[i]);
  }
  for (const auto& [name, kept] : parted) {
    const onnx::TensorProto& source = *kept;  // stays where it is
    onnx::TensorProto* const tensor = graph->add_initializer();
    *tensor = source;
    tensor->set_name(name);
  }
}

std::vector<std::string> FindFoldedParameters(const onnx::ModelProto& file) {
  std::vector<std::string> lines;
  if (file.producer_name() != kProducer || !file.has_graph()) return lines;
  constexpr absl::string_view kRemedy =
      "Export it with torch.onnx.export(model.train(), ..., dynamo=False, "
      "training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)";
  const auto folded = FoldedWeights(file.graph());
  if (!folded.empty()) {
    lines.push_back(absl::StrCat(
        "the exporter made ", folded.size(), " weights of its own (",
        JoinNames(folded), "), as when it folds BatchNormalization into a ",
        "convolution, so the model would not train as the original does. ",
        kRemedy));
  }
  const auto merged = MergedWeights(file.graph());
  if (!merged.empty()) {
    lines.push_back(absl::StrCat(
        "the exporter merged ", merged.size(), " weights with others (",
        JoinNames(merged), "), and does not say whether the model ties them. ",
        kRemedy));
  }
  const auto untied = UntiedWeights(file.graph());
  if (!untied.empty()) {
    lines.push_back(absl::StrCat("the exporter wrote ", untied.size(),
                                 " weights twice that the model has once (",
                                 JoinNames(untied),
                                 "), which would be trained apart. ", kRemedy));
  }
  const auto doubled = DoubledWeights(file.graph());
  if (!doubled.empty()) {
    lines.push_back(absl::StrCat(
        "the exporter made ", doubled.size(),
        " weights of recurrent layers that are equal to others (",
        JoinNames(doubled),
        "), and does not say whether the model has them once; they would be "
        "trained apart. ",
        kRemedy));
  }
  return lines;
}

}  // namespace syncline
