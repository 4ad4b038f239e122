#include "common/model/import/import_rewrites.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/model/graph/graph.h"
#include "common/model/graph/onnx_file.h"
#include "common/model/graph/schemas.h"
#include "onnx/onnx_pb.h"

namespace syncline {
namespace {

// From here on axes and sizes are inputs.
constexpr int kOpsetOfInputs = 13;
// No dimension is as large, and products of two stay far from overflow.
constexpr int64_t kPlaceMax = int64_t{1} << 30;

bool IsOnnxOp(const onnx::NodeProto& node, absl::string_view op_type) {
  return node.op_type() == op_type &&
         (node.domain().empty() || node.domain() == "ai.onnx");
}

int64_t IntAttribute(const onnx::NodeProto& node, absl::string_view name,
                     int64_t fallback) {
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.name() == name) return attribute.i();
  }
  return fallback;
}

void SetInt(const char* name, int64_t value, onnx::NodeProto* node) {
  onnx::AttributeProto* const attribute = node->add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::INT);
  attribute->set_i(value);
}

void SetInts(const char* name, absl::Span<const int64_t> values,
             onnx::NodeProto* node) {
  onnx::AttributeProto* const attribute = node->add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::INTS);
  for (const int64_t value : values) attribute->add_ints(value);
}

// Whole numbers that a file has.
struct Constant {
  bool is_scalar = false;
  std::vector<int64_t> values;
};

std::optional<Constant> ReadTensor(const onnx::TensorProto& proto) {
  if (proto.data_type() != onnx::TensorProto::INT64 &&
      proto.data_type() != onnx::TensorProto::INT32) {
    return std::nullopt;
  }
  onnx::TensorProto copy = proto;
  const auto tensor = TakeTensor(&copy);
  if (!tensor.ok() || tensor->dims.size() > 1) return std::nullopt;
  Constant constant;
  constant.is_scalar = tensor->dims.empty();
  const int64_t count = ElementCount(tensor->dims);
  const char* const bytes = tensor->bytes.data();
  for (int64_t i = 0; i < count; ++i) {
    if (tensor->dtype == DType::kInt64) {
      constant.values.push_back(reinterpret_cast<const int64_t*>(bytes)[i]);
    } else {
      constant.values.push_back(reinterpret_cast<const int32_t*>(bytes)[i]);
    }
  }
  return constant;
}

std::optional<Constant> ReadConstantNode(const onnx::NodeProto& node) {
  if (!IsOnnxOp(node, "Constant") || node.attribute_size() != 1) {
    return std::nullopt;
  }
  const onnx::AttributeProto& value = node.attribute(0);
  if (value.name() == "value") return ReadTensor(value.t());
  if (value.name() == "value_int") return Constant{true, {value.i()}};
  if (value.name() == "value_ints") {
    return Constant{false, {value.ints().begin(), value.ints().end()}};
  }
  return std::nullopt;
}

class SequenceRewriter {
 public:
  SequenceRewriter(int opset_version, onnx::GraphProto* graph)
      : opset_version_(opset_version), graph_(graph) {}

  void Run() {
    Index();
    google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
    nodes.Swap(graph_->mutable_node());
    for (onnx::NodeProto& node : nodes) {
      if (!Rewrite(node)) *graph_->add_node() = std::move(node);
    }
    RemoveUnread();
  }

 private:
  void Index();
  // Adds what does the same as `node`; false: nothing does.
  bool Rewrite(const onnx::NodeProto& node);
  bool RewriteAt(const onnx::NodeProto& at);
  bool TakeRow(const onnx::NodeProto& at, const onnx::NodeProto& split,
               int64_t place);
  bool TakePart(const onnx::NodeProto& at, const onnx::NodeProto& split,
                const Constant& sizes, int64_t place);
  bool Join(const onnx::NodeProto& concat, const onnx::NodeProto& list);
  // Lists that nothing reads any more.
  void RemoveUnread();

  const onnx::NodeProto* ListOf(const std::string& name) const {
    const auto it = lists_.find(name);
    return it == lists_.end() ? nullptr : &it->second;
  }
  const Constant* Known(const std::string& name) const {
    const auto it = constants_.find(name);
    return it == constants_.end() ? nullptr : &it->second;
  }

  onnx::NodeProto* Add(const onnx::NodeProto& origin, const char* op_type,
                       absl::string_view output) {
    onnx::NodeProto* const node = graph_->add_node();
    node->set_op_type(op_type);
    node->set_name(absl::StrCat(origin.name(), "/", op_type, "#", ++added_));
    node->add_output(std::string(output));
    return node;
  }
  std::string AddInts(const onnx::NodeProto& origin, bool is_scalar,
                      absl::Span<const int64_t> values) {
    const std::string name =
        absl::StrCat(origin.output(0), "/constant#", ++added_);
    onnx::NodeProto* const node = Add(origin, "Constant", name);
    // Lists as attributes are of opset 12.
    onnx::AttributeProto* const value = node->add_attribute();
    value->set_name("value");
    value->set_type(onnx::AttributeProto::TENSOR);
    const int64_t count = static_cast<int64_t>(values.size());
    WriteTensor(DType::kInt64, is_scalar ? Dims() : Dims{count},
                {reinterpret_cast<const char*>(values.data()),
                 values.size() * sizeof(int64_t)},
                value->mutable_t());
    return name;
  }

  const int opset_version_;
  onnx::GraphProto* const graph_;
  // Nodes that make a list, and numbers, by the name of their output.
  absl::flat_hash_map<std::string, onnx::NodeProto> lists_;
  absl::flat_hash_map<std::string, Constant> constants_;
  // Lists that are cut by a Split by now.
  absl::flat_hash_set<std::string> split_;
  int added_ = 0;
};

void SequenceRewriter::Index() {
  for (const onnx::TensorProto& tensor : graph_->initializer()) {
    const bool is_short = tensor.dims_size() < 2 &&
                          (tensor.dims_size() == 0 || tensor.dims(0) < 4096);
    if (!is_short) continue;
    if (auto constant = ReadTensor(tensor)) {
      constants_[tensor.name()] = *std::move(constant);
    }
  }
  for (const onnx::NodeProto& node : graph_->node()) {
    if (node.output_size() != 1) continue;
    if (auto constant = ReadConstantNode(node)) {
      constants_[node.output(0)] = *std::move(constant);
    }
    if (IsOnnxOp(node, "SplitToSequence") ||
        IsOnnxOp(node, "SequenceConstruct")) {
      lists_[node.output(0)] = node;
    }
  }
}

bool SequenceRewriter::Rewrite(const onnx::NodeProto& node) {
  if (node.output_size() != 1) return false;
  if (IsOnnxOp(node, "SequenceAt") && node.input_size() == 2) {
    return RewriteAt(node);
  }
  if (IsOnnxOp(node, "ConcatFromSequence") && node.input_size() == 1) {
    const onnx::NodeProto* const list = ListOf(node.input(0));
    return list != nullptr && IsOnnxOp(*list, "SequenceConstruct") &&
           Join(node, *list);
  }
  return false;
}

bool SequenceRewriter::RewriteAt(const onnx::NodeProto& at) {
  const onnx::NodeProto* const list = ListOf(at.input(0));
  const Constant* const places = Known(at.input(1));
  if (list == nullptr || places == nullptr || places->values.size() != 1) {
    return false;
  }
  const int64_t place = places->values[0];
  if (place < -kPlaceMax || place > kPlaceMax) return false;
  if (IsOnnxOp(*list, "SequenceConstruct")) {
    const int64_t count = list->input_size();
    const int64_t i = place < 0 ? place + count : place;
    if (i < 0 || i >= count) return false;
    Add(at, "Identity", at.output(0))
        ->add_input(list->input(static_cast<int>(i)));
    return true;
  }
  if (list->input_size() == 0) return false;
  if (list->input_size() == 1 || list->input(1).empty()) {
    return TakeRow(at, *list, place);
  }
  const Constant* const sizes = Known(list->input(1));
  return sizes != nullptr && TakePart(at, *list, *sizes, place);
}

// One step along the axis: keepdims says whether the axis stays.
bool SequenceRewriter::TakeRow(const onnx::NodeProto& at,
                               const onnx::NodeProto& split, int64_t place) {
  const bool keeps = IntAttribute(split, "keepdims", 1) != 0;
  const std::string index = AddInts(at, /*is_scalar=*/!keeps, {place});
  onnx::NodeProto* const gather = Add(at, "Gather", at.output(0));
  gather->add_input(split.input(0));
  gather->add_input(index);
  SetInt("axis", IntAttribute(split, "axis", 0), gather);
  return true;
}

bool SequenceRewriter::TakePart(const onnx::NodeProto& at,
                                const onnx::NodeProto& split,
                                const Constant& sizes, int64_t place) {
  const int64_t axis = IntAttribute(split, "axis", 0);
  if (sizes.is_scalar) {
    const int64_t size = sizes.values[0];
    // How many parts there are from the end is not known yet.
    if (size < 1 || size > kPlaceMax || place < 0) return false;
    const std::string from = AddInts(at, false, {place * size});
    const std::string to = AddInts(at, false, {(place + 1) * size});
    const std::string along = AddInts(at, false, {axis});
    onnx::NodeProto* const slice = Add(at, "Slice", at.output(0));
    for (const std::string& input : {split.input(0), from, to, along}) {
      slice->add_input(input);
    }
    return true;
  }
  const int64_t count = static_cast<int64_t>(sizes.values.size());
  const int64_t i = place < 0 ? place + count : place;
  if (i < 0 || i >= count) return false;
  const auto part = [&](int64_t k) {
    return absl::StrCat(split.output(0), "/part#", k);
  };
  if (split_.insert(split.output(0)).second) {
    onnx::NodeProto* const parts = Add(split, "Split", part(0));
    for (int64_t k = 1; k < count; ++k) parts->add_output(part(k));
    parts->add_input(split.input(0));
    SetInt("axis", axis, parts);
    if (opset_version_ < kOpsetOfInputs) {
      SetInts("split", sizes.values, parts);
    } else {
      parts->add_input(split.input(1));
    }
  }
  Add(at, "Identity", at.output(0))->add_input(part(i));
  return true;
}

bool SequenceRewriter::Join(const onnx::NodeProto& concat,
                            const onnx::NodeProto& list) {
  const int64_t axis = IntAttribute(concat, "axis", 0);
  std::vector<std::string> parts(list.input().begin(), list.input().end());
  if (IntAttribute(concat, "new_axis", 0) != 0) {
    for (std::string& part : parts) {
      const std::string row = absl::StrCat(part, "/row#", ++added_);
      const bool is_input = opset_version_ >= kOpsetOfInputs;
      const std::string axes = is_input ? AddInts(concat, false, {axis}) : "";
      onnx::NodeProto* const unsqueeze = Add(concat, "Unsqueeze", row);
      unsqueeze->add_input(part);
      if (is_input) {
        unsqueeze->add_input(axes);
      } else {
        SetInts("axes", {axis}, unsqueeze);
      }
      part = row;
    }
  }
  onnx::NodeProto* const joined = Add(concat, "Concat", concat.output(0));
  for (const std::string& part : parts) joined->add_input(part);
  SetInt("axis", axis, joined);
  return true;
}

void SequenceRewriter::RemoveUnread() {
  absl::flat_hash_set<std::string> read;
  for (const onnx::NodeProto& node : graph_->node()) {
    read.insert(node.input().begin(), node.input().end());
  }
  for (const onnx::ValueInfoProto& output : graph_->output()) {
    read.insert(output.name());
  }
  auto* const nodes = graph_->mutable_node();
  nodes->erase(std::remove_if(nodes->begin(), nodes->end(),
                              [&](const onnx::NodeProto& node) {
                                return node.output_size() == 1 &&
                                       lists_.contains(node.output(0)) &&
                                       !read.contains(node.output(0));
                              }),
               nodes->end());
}

bool HasSequences(const onnx::GraphProto& graph) {
  return absl::c_any_of(graph.node(), [](const onnx::NodeProto& node) {
    return IsOnnxOp(node, "SequenceAt") || IsOnnxOp(node, "ConcatFromSequence");
  });
}

// Names nodes without a name before any rewrite, so that messages name them by
// their place in the file.
void NameNodes(onnx::GraphProto* graph) {
  for (int i = 0; i < graph->node_size(); ++i) {
    onnx::NodeProto& node = *graph->mutable_node(i);
    if (node.name().empty()) {
      node.set_name(absl::StrCat(node.op_type(), "#", i));
    }
  }
}

// A copy that takes the content of the initializers along.
std::unique_ptr<onnx::ModelProto> TakeContent(onnx::ModelProto* file) {
  auto model = std::make_unique<onnx::ModelProto>();
  google::protobuf::RepeatedPtrField<onnx::TensorProto> tensors;
  tensors.Swap(file->mutable_graph()->mutable_initializer());
  *model = *file;
  for (onnx::TensorProto& tensor : tensors) {
    *file->mutable_graph()->add_initializer() = WithoutContent(&tensor);
  }
  tensors.Swap(model->mutable_graph()->mutable_initializer());
  return model;
}

// 0: none that FindSchema takes.
int OpsetOf(const onnx::ModelProto& model) {
  for (const auto& import : model.opset_import()) {
    if (import.domain().empty() || import.domain() == "ai.onnx") {
      const bool fits =
          import.version() >= kOpsetMin && import.version() <= kOpsetMax;
      return fits ? static_cast<int>(import.version()) : 0;
    }
  }
  return 0;
}

}  // namespace

void RewriteSequences(int opset_version, onnx::GraphProto* graph) {
  SequenceRewriter(opset_version, graph).Run();
}

std::unique_ptr<onnx::ModelProto> RewriteForTraining(
    onnx::ModelProto* file, std::vector<std::string>* problems,
    std::vector<std::string>* notes, ExactContents* exact_contents) {
  if (!file->has_graph()) return nullptr;
  const int opset = OpsetOf(*file);
  if (opset == 0) return nullptr;
  const bool has_sequences = HasSequences(file->graph());
  const bool has_float64 = ComputesInFloat64(opset, file->graph());
  if (!has_sequences && !has_float64) return nullptr;
  std::unique_ptr<onnx::ModelProto> model = TakeContent(file);
  onnx::GraphProto* const graph = model->mutable_graph();
  NameNodes(graph);
  if (has_sequences) RewriteSequences(opset, graph);
  if (has_float64) {
    RewriteFloat64(opset, graph, problems, notes, exact_contents);
  }
  return model;
}

}  // namespace syncline
