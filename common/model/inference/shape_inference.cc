#include "common/model/inference/shape_inference.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/model/graph/describe.h"
#include "common/model/graph/graph_builder.h"
#include "common/model/graph/onnx_file.h"
#include "common/model/graph/schemas.h"
#include "common/model/graph/value_index.h"
#include "common/model/inference/attribute_ranges.h"
#include "common/model/inference/constant_folding.h"
#include "onnx/defs/schema.h"
#include "onnx/onnx_pb.h"

namespace syncline {
namespace {

// Sums with these stay far from overflow; the operators refuse smaller ones.
constexpr int64_t kPadMax = int64_t{1} << 46;

onnx::TypeProto ToOnnxType(const InferredValue& value) {
  onnx::TypeProto type;
  auto* tensor = type.mutable_tensor_type();
  tensor->set_elem_type(DTypeToOnnx(value.dtype));
  auto* shape = tensor->mutable_shape();
  for (int64_t dim : value.dims) shape->add_dim()->set_dim_value(dim);
  return type;
}

// One node, as libonnx's rules ask for it.
class NodeContext : public onnx::InferenceContext {
 public:
  NodeContext(const Graph& graph, const Node& node,
              const onnx::NodeProto& file_node,
              absl::Span<const InferredValue> values)
      : graph_(graph),
        node_(node),
        file_node_(file_node),
        values_(values),
        outputs_(node.outputs.size()),
        data_(node.inputs.size()) {
    for (ValueId id : node.inputs) {
      inputs_.push_back(id == kNoValue ? onnx::TypeProto()
                                       : ToOnnxType(values[id]));
    }
  }

  const onnx::AttributeProto* getAttribute(
      const std::string& name) const override {
    for (const auto& attribute : file_node_.attribute()) {
      if (attribute.name() == name) return &attribute;
    }
    return nullptr;
  }
  size_t getNumInputs() const override { return inputs_.size(); }
  const onnx::TypeProto* getInputType(size_t i) const override {
    return i < inputs_.size() && node_.inputs[i] != kNoValue ? &inputs_[i]
                                                             : nullptr;
  }
  const onnx::TensorProto* getInputData(size_t i) const override {
    if (i >= inputs_.size() || node_.inputs[i] == kNoValue) return nullptr;
    const ConstantTensor* const tensor = Known(node_.inputs[i]);
    if (tensor == nullptr ||
        ElementCount(tensor->dims) > kReadableElementsMax) {
      return nullptr;
    }
    if (data_[i] == nullptr) {
      data_[i] = std::make_unique<onnx::TensorProto>();
      WriteTensor(tensor->dtype, tensor->dims, tensor->bytes, data_[i].get());
    }
    return data_[i].get();
  }
  size_t getNumOutputs() const override { return outputs_.size(); }
  onnx::TypeProto* getOutputType(size_t i) override { return &outputs_.at(i); }
  onnx::GraphInferencer* getGraphAttributeInferencer(
      const std::string&) override {
    return nullptr;  // no supported operator has a graph inside
  }
  const onnx::SparseTensorProto* getInputSparseData(size_t) const override {
    return nullptr;
  }
  const onnx::TensorShapeProto* getSymbolicInput(size_t) const override {
    return nullptr;
  }

 private:
  const ConstantTensor* Known(ValueId id) const {
    const Value& value = graph_.values[id];
    if (value.initializer < 0) return values_[id].constant.get();
    const Initializer& initializer = graph_.initializers[value.initializer];
    return initializer.origin == Initializer::Origin::kDeclared
               ? nullptr
               : &initializer.tensor;
  }

  const Graph& graph_;
  const Node& node_;
  const onnx::NodeProto& file_node_;
  const absl::Span<const InferredValue> values_;
  std::vector<onnx::TypeProto> inputs_;
  std::vector<onnx::TypeProto> outputs_;
  mutable std::vector<std::unique_ptr<onnx::TensorProto>> data_;
};

// Of ceil_mode's windows one that would begin on the padding at the end is none
// (as PyTorch has it, and ONNX's definition since 1.16). libonnx counts it.
void DropWindowsOnPadding(const Node& node, const Dims& in,
                          NodeContext* context) {
  if (node.Int("ceil_mode", 0) == 0) return;
  const std::vector<int64_t> strides = node.Ints("strides");
  const std::vector<int64_t> pads = node.Ints("pads");
  for (size_t i = 0; i < context->getNumOutputs(); ++i) {
    auto* shape =
        context->getOutputType(i)->mutable_tensor_type()->mutable_shape();
    for (int d = 2; d < shape->dim_size(); ++d) {
      const size_t axis = d - 2;
      const int64_t stride = axis < strides.size() ? strides[axis] : 1;
      const int64_t pad = axis < pads.size() ? pads[axis] : 0;
      const int64_t last = shape->dim(d).dim_value() - 1;
      const int64_t end = in[d] + std::clamp<int64_t>(pad, 0, kPadMax);
      if (last > 0 && stride > 0 && last > (end - 1) / stride) {
        shape->mutable_dim(d)->set_dim_value(last);
      }
    }
  }
}

// The size along spatial axis i that a ConvTranspose's output_shape asks for,
// or its auto_pad, which asks for a stride for each input; -1: neither does.
int64_t ToldSize(const Node& node, const Dims& in, size_t i) {
  const std::vector<int64_t> given = node.Ints("output_shape");
  if (i < given.size()) return given[i];
  if (!absl::StartsWith(node.String("auto_pad", ""), "SAME")) return -1;
  const std::vector<int64_t> strides = node.Ints("strides");
  const int64_t stride = i < strides.size() ? strides[i] : 1;
  return stride > 0 && stride <= kPadMax / std::max<int64_t>(in[i + 2], 1)
             ? stride * in[i + 2]
             : -1;
}

// libonnx stops halfway where output_shape is smaller than the input, and adds
// output_padding to what auto_pad says. Where it stopped and an axis is not
// told, nothing is.
void SetToldSizes(const Node& node, const Dims& in, NodeContext* context) {
  auto* tensor = context->getOutputType(0)->mutable_tensor_type();
  if (!tensor->has_shape()) return;
  std::vector<int64_t> told;
  for (size_t i = 0; i + 2 < in.size(); ++i) {
    told.push_back(ToldSize(node, in, i));
  }
  const bool is_told =
      absl::c_none_of(told, [](int64_t size) { return size < 0; });
  const int rank = tensor->shape().dim_size();
  if (!is_told || rank < 2) {
    if (rank != static_cast<int>(in.size())) tensor->clear_shape();
    return;
  }
  auto* shape = tensor->mutable_shape();
  shape->mutable_dim()->DeleteSubrange(2, rank - 2);
  for (const int64_t size : told) shape->add_dim()->set_dim_value(size);
}

// libonnx does not read the depth, which is the size of the new dimension.
void SetDepth(const Node& node, const ConstantTensor* depth,
              NodeContext* context) {
  auto* tensor = context->getOutputType(0)->mutable_tensor_type();
  if (!tensor->has_shape() || depth == nullptr ||
      depth->dtype != DType::kInt64 || depth->ints().size() != 1) {
    return;
  }
  const int rank = tensor->shape().dim_size();
  int64_t axis = node.Int("axis", -1);
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank || depth->ints()[0] < 1) return;
  tensor->mutable_shape()
      ->mutable_dim(static_cast<int>(axis))
      ->set_dim_value(depth->ints()[0]);
}

ConstantTensor IntTensor(int64_t value) {
  ConstantTensor tensor;
  tensor.dtype = DType::kInt64;
  tensor.dims = {1};
  tensor.bytes.assign(reinterpret_cast<const char*>(&value), sizeof(value));
  return tensor;
}

// `from` may be stretched to `to` by NumPy's rules, without stretching `to`.
bool BroadcastsTo(absl::Span<const int64_t> from,
                  absl::Span<const int64_t> to) {
  if (from.size() > to.size()) return false;
  const size_t skipped = to.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] != 1 && from[i] != to[skipped + i]) return false;
  }
  return true;
}

class ValueInference {
 public:
  ValueInference(const Graph& graph, const onnx::GraphProto& file,
                 int64_t batch_size, int64_t length, BatchStyle style,
                 std::vector<std::string>* problems)
      : graph_(graph),
        batch_size_(batch_size),
        length_(length),
        style_(style),
        problems_(problems),
        values_(graph.values.size()) {
    for (const auto* list : {&file.value_info(), &file.output()}) {
      for (const onnx::ValueInfoProto& info : *list) {
        if (info.type().tensor_type().elem_type() == 0) continue;  // left out
        declared_[info.name()] = &info.type().tensor_type();
      }
    }
    const ValueIndex index(graph);
    for (const onnx::ValueInfoProto& input : file.input()) {
      const ValueId id = index.Find(input.name());
      const auto& shape = input.type().tensor_type().shape();
      if (id == kNoValue || shape.dim_size() == 0 ||
          graph.values[id].dims.empty() ||
          graph.values[id].dims[0] != kBatchDim) {
        continue;
      }
      batch_symbol_ = shape.dim(0).dim_param();
      if (!batch_symbol_.empty()) break;
    }
  }

  std::vector<InferredValue> Run(absl::Span<const Node> nodes,
                                 const onnx::GraphProto& file,
                                 absl::Span<const int> file_nodes) {
    for (size_t id = 0; id < values_.size(); ++id) {
      const Value& value = graph_.values[id];
      if (value.kind == Value::Kind::kComputed || !value.known) continue;
      values_[id] = {true, value.dtype, value.dims};
      std::replace(values_[id].dims.begin(), values_[id].dims.end(), kBatchDim,
                   batch_size_);
      for (size_t d = 0; length_ > 0 && d < value.dims.size(); ++d) {
        if ((value.length_mask >> d & 1) != 0) values_[id].dims[d] = length_;
      }
      if (!WithinLimits(values_[id].dims)) {
        problems_->push_back(absl::StrCat(Quote(value.name), " would be ",
                                          Describe(values_[id]),
                                          ", too large"));
        values_[id].known = false;
        continue;
      }
      Settle(static_cast<ValueId>(id));
    }
    for (size_t i = 0; i < nodes.size(); ++i) {
      const Node& node = nodes[i];
      const bool ready = std::all_of(
          node.inputs.begin(), node.inputs.end(),
          [&](ValueId id) { return id == kNoValue || values_[id].known; });
      if (!ready || file_nodes[i] == BuiltGraph::kBadNode) {
        for (const ValueId id : node.outputs) TakeDeclared(id);
        continue;
      }
      absl::Status status = InferNode(node, file.node(file_nodes[i]));
      if (status.ok()) status = FoldNodeOutput(node);
      if (!status.ok()) Problem(node, status.message());
    }
    return std::move(values_);
  }

 private:
  // Sets the outputs of `node`.
  absl::Status InferNode(const Node& node, const onnx::NodeProto& file_node);
  // Sets the outputs' values if the inputs' are known and no weights.
  absl::Status FoldNodeOutput(const Node& node);
  absl::Status FoldSplit(const Node& node);
  // Sets the value of `id` to what `node` computes from `inputs`.
  absl::Status Fold(const Node& node, absl::Span<const FoldInput> inputs,
                    ValueId id);
  // Null: not known, or trained.
  const ConstantTensor* UntrainedValue(ValueId id) const;
  // Checks that libonnx 1.12 leaves out.
  absl::Status CheckInputValues(const Node& node) const;
  absl::Status CheckFit(const Node& node) const;
  // Of LSTM, GRU and RNN: weights and states are for hidden_size.
  absl::Status CheckRecurrence(const Node& node) const;
  // Reads the inferred type of `id`, falling back to what the file declares.
  absl::Status SetOutput(ValueId id, const onnx::TypeProto& type);
  // Takes the shape that the file declares where none can be inferred, if it
  // holds for any batch size. Then the nodes behind it are checked, too.
  void TakeDeclared(ValueId id);
  // Compares a known value with what the file declares for it.
  void Settle(ValueId id);

  std::string Describe(const InferredValue& value) const {
    Dims dims = value.dims;
    if (style_ == BatchStyle::kSymbol) {
      std::replace(dims.begin(), dims.end(), batch_size_, kBatchDim);
    }
    return DescribeTensor(value.dtype, dims);
  }

  void Problem(const Node& node, absl::string_view message) {
    std::vector<std::string> inputs;
    for (ValueId id : node.inputs) {
      inputs.push_back(id == kNoValue ? "none" : Describe(values_[id]));
    }
    problems_->push_back(absl::StrCat(
        DescribeNode(node.name, node.op_type, graph_.opset_version),
        " with inputs ", absl::StrJoin(inputs, ", "), ": ", Spoken(message)));
  }

  // A message of libonnx, whose numbers are those of the trial, for people: the
  // batch size that only the trial has is N.
  std::string Spoken(absl::string_view message) const {
    if (style_ != BatchStyle::kSymbol) return std::string(message);
    const std::string size = absl::StrCat(batch_size_);
    std::string spoken;
    while (!message.empty()) {
      const size_t begin = message.find_first_of("0123456789");
      const size_t end = std::min(
          message.find_first_not_of("0123456789", begin), message.size());
      const size_t word = std::min(begin, message.size());
      const absl::string_view number = message.substr(word, end - word);
      absl::StrAppend(&spoken, message.substr(0, word),
                      number == size ? "N" : number);
      message.remove_prefix(end);
    }
    return spoken;
  }

  const Graph& graph_;
  const int64_t batch_size_;
  const int64_t length_;  // 0: the longest
  const BatchStyle style_;
  std::vector<std::string>* const problems_;
  std::vector<InferredValue> values_;
  int64_t folded_bytes_ = 0;  // of `constant`s
  std::string batch_symbol_;  // as the file's inputs have it
  // Types that the file declares for computed values and outputs.
  absl::flat_hash_map<std::string, const onnx::TypeProto::Tensor*> declared_;
};

absl::Status ValueInference::InferNode(const Node& node,
                                       const onnx::NodeProto& file_node) {
  SYNCLINE_RETURN_IF_ERROR(CheckAttributeRanges(node));
  SYNCLINE_RETURN_IF_ERROR(CheckInputValues(node));
  SYNCLINE_RETURN_IF_ERROR(CheckRecurrence(node));
  const onnx::OpSchema* schema =
      FindSchema(*FindOperator(node.op_type), graph_.opset_version);
  NodeContext context(graph_, node, file_node, values_);
  try {
    schema->GetTypeAndShapeInferenceFunction()(context);
    schema->CheckInputOutputType(context);
  } catch (const std::exception& e) {
    absl::string_view message = e.what();
    absl::ConsumePrefix(&message, "[ShapeInferenceError] ");
    absl::ConsumePrefix(&message, "[TypeInferenceError] ");
    return absl::InvalidArgumentError(message);
  }
  // Its rules before opset 14 leave out what training gives besides.
  if (node.op_type == "BatchNormalization") {
    for (size_t i = 1; i < node.outputs.size(); ++i) {
      *context.getOutputType(i) = *context.getInputType(3);
    }
  }
  if (node.op_type == "OneHot") {
    SetDepth(node, UntrainedValue(node.inputs[1]), &context);
  }
  if (node.op_type == "ConvTranspose") {
    SetToldSizes(node, values_[node.inputs[0]].dims, &context);
  }
  if (node.op_type == "AveragePool" || node.op_type == "MaxPool") {
    DropWindowsOnPadding(node, values_[node.inputs[0]].dims, &context);
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kNoValue) continue;
    SYNCLINE_RETURN_IF_ERROR(
        SetOutput(node.outputs[i], *context.getOutputType(i)));
  }
  return CheckFit(node);
}

const ConstantTensor* ValueInference::UntrainedValue(ValueId id) const {
  const Value& value = graph_.values[id];
  if (value.initializer < 0) return values_[id].constant.get();
  const Initializer& initializer = graph_.initializers[value.initializer];
  const bool may_be_trained =
      initializer.origin != Initializer::Origin::kConstant &&
      value.dtype == DType::kFloat32;
  return may_be_trained ? nullptr : &initializer.tensor;
}

// Each output is a slice.
absl::Status ValueInference::FoldSplit(const Node& node) {
  const InferredValue& in = values_[node.inputs[0]];
  int64_t axis = node.Int("axis", 0);
  if (axis < 0) axis += static_cast<int64_t>(in.dims.size());
  if (axis < 0 || axis >= static_cast<int64_t>(in.dims.size())) {
    return absl::OkStatus();
  }
  const ConstantTensor axes = IntTensor(axis);
  Node slice;
  slice.op_type = "Slice";
  int64_t first = 0;
  for (const ValueId id : node.outputs) {
    if (id == kNoValue || !values_[id].known) return absl::OkStatus();
    const int64_t end = first + values_[id].dims[axis];
    const ConstantTensor starts = IntTensor(first), ends = IntTensor(end);
    const FoldInput inputs[] = {{true, in.dims, UntrainedValue(node.inputs[0])},
                                {true, starts.dims, &starts},
                                {true, ends.dims, &ends},
                                {true, axes.dims, &axes}};
    SYNCLINE_RETURN_IF_ERROR(Fold(slice, inputs, id));
    first = end;
  }
  return absl::OkStatus();
}

absl::Status ValueInference::FoldNodeOutput(const Node& node) {
  if (node.op_type == "Split") return FoldSplit(node);
  if (node.outputs.size() != 1 || node.outputs[0] == kNoValue) {
    return absl::OkStatus();
  }
  std::vector<FoldInput> inputs;
  for (ValueId id : node.inputs) {
    inputs.push_back(
        id == kNoValue ? FoldInput()
                       : FoldInput{true, values_[id].dims, UntrainedValue(id)});
  }
  return Fold(node, inputs, node.outputs[0]);
}

absl::Status ValueInference::Fold(const Node& node,
                                  absl::Span<const FoldInput> inputs,
                                  ValueId id) {
  InferredValue& out = values_[id];
  if (folded_bytes_ > kFoldedBytesMax) return absl::OkStatus();
  SYNCLINE_ASSIGN_OR_RETURN(auto value,
                            FoldNode(node, inputs, out.dtype, out.dims));
  if (!value.has_value()) return absl::OkStatus();
  folded_bytes_ += static_cast<int64_t>(value->bytes.size());
  if (folded_bytes_ > kFoldedBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "up to this node, what is known before training (shapes, positions, "
        "masks) takes more than ",
        kFoldedBytesMax >> 20,
        " MiB; the model must read such values as inputs instead"));
  }
  out.constant = std::make_shared<const ConstantTensor>(*std::move(value));
  return absl::OkStatus();
}

absl::Status ValueInference::CheckInputValues(const Node& node) const {
  // Products of these shapes are taken without a look at overflow.
  const bool of_shape = node.op_type == "ConstantOfShape";
  if (!of_shape && node.op_type != "Expand" && node.op_type != "Reshape" &&
      node.op_type != "Tile") {
    return absl::OkStatus();
  }
  const size_t at = of_shape ? 0 : 1;
  if (at >= node.inputs.size() || node.inputs[at] == kNoValue) {
    return absl::OkStatus();
  }
  const ConstantTensor* const tensor = UntrainedValue(node.inputs[at]);
  if (tensor == nullptr || tensor->dtype != DType::kInt64) {
    return absl::OkStatus();
  }
  Dims shape(tensor->ints().begin(), tensor->ints().end());
  const Dims& data = values_[node.inputs[0]].dims;
  if (node.op_type == "Tile" && WithinLimits(shape)) {
    for (size_t d = 0; d < std::min(shape.size(), data.size()); ++d) {
      const bool fits =
          shape[d] <= kElementsMax / std::max<int64_t>(data[d], 1);
      shape[d] = fits ? shape[d] : std::numeric_limits<int64_t>::max();
    }
  }
  if (WithinLimits(shape)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the values of ", Quote(graph_.values[node.inputs[at]].name),
                   " are too large for a shape"));
}

absl::Status ValueInference::CheckRecurrence(const Node& node) const {
  constexpr size_t kCellState = 6;
  const bool is_lstm = node.op_type == "LSTM";
  if ((!is_lstm && node.op_type != "GRU" && node.op_type != "RNN") ||
      !node.Has("hidden_size")) {
    return absl::OkStatus();
  }
  const int64_t hidden = node.Int("hidden_size", 0);
  // Recurrent weights and initial states, whose last dimension is the state's.
  for (const size_t input : {size_t{2}, size_t{5}, kCellState}) {
    if (input >= node.inputs.size() || node.inputs[input] == kNoValue) continue;
    const Dims& dims = values_[node.inputs[input]].dims;
    if (dims.size() != 3 || dims[2] == hidden) continue;
    std::string problem =
        absl::StrCat("hidden_size is ", hidden, ", but input ", input, " (",
                     Quote(graph_.values[node.inputs[input]].name),
                     ") is for a state of ", dims[2]);
    // PyTorch's exporter takes proj_size for hidden_size, and as many of the
    // weights. Only the cell state tells it.
    if (is_lstm && input == kCellState && dims[2] > hidden) {
      absl::StrAppend(&problem, "; so torch.nn.LSTM(hidden_size=", dims[2],
                      ", proj_size=", hidden,
                      ") is exported, with a part of its weights: ONNX has no "
                      "projection. Export a model with proj_size=0");
    }
    return absl::InvalidArgumentError(problem);
  }
  return absl::OkStatus();
}

absl::Status ValueInference::SetOutput(ValueId id,
                                       const onnx::TypeProto& type) {
  const std::string name = Quote(graph_.values[id].name);
  const auto declared = declared_.find(graph_.values[id].name);
  const onnx::TypeProto::Tensor* tensor = &type.tensor_type();
  if (!tensor->has_shape() && declared != declared_.end()) {
    tensor = declared->second;
  }
  InferredValue value;
  SYNCLINE_ASSIGN_OR_RETURN(value.dtype,
                            DTypeFromOnnx(type.tensor_type().elem_type()));
  for (int d = 0; d < tensor->shape().dim_size(); ++d) {
    const auto* dim = &tensor->shape().dim(d);
    const bool open =
        !dim->has_dim_value() && declared != declared_.end() &&
        declared->second->shape().dim_size() == tensor->shape().dim_size();
    if (open) dim = &declared->second->shape().dim(d);
    value.dims.push_back(dim->has_dim_value() ? dim->dim_value() : -1);
  }
  if (!tensor->has_shape() ||
      absl::c_any_of(value.dims, [](int64_t dim) { return dim < 0; })) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the shape of its output ", name, " cannot be told from the file"));
  }
  if (!WithinLimits(value.dims)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its output ", name, " would be ", Describe(value), ", too large"));
  }
  value.known = true;
  values_[id] = std::move(value);
  Settle(id);
  return absl::OkStatus();
}

void ValueInference::TakeDeclared(ValueId id) {
  if (id == kNoValue || values_[id].known) return;
  const auto declared = declared_.find(graph_.values[id].name);
  if (declared == declared_.end() || !declared->second->has_shape()) return;
  const auto dtype = DTypeFromOnnx(declared->second->elem_type());
  InferredValue value;
  value.known = dtype.ok();
  if (dtype.ok()) value.dtype = *dtype;
  for (const auto& dim : declared->second->shape().dim()) {
    const bool is_batch =
        !dim.dim_param().empty() && dim.dim_param() == batch_symbol_;
    value.known &= is_batch || dim.dim_value() > 0;
    value.dims.push_back(is_batch ? batch_size_ : dim.dim_value());
  }
  if (value.known && WithinLimits(value.dims)) values_[id] = std::move(value);
}

void ValueInference::Settle(ValueId id) {
  const auto it = declared_.find(graph_.values[id].name);
  if (it == declared_.end()) return;
  const InferredValue& value = values_[id];
  if (!Allows(*it->second, value.dtype, value.dims)) {
    problems_->push_back(
        absl::StrCat(Quote(graph_.values[id].name), " is ", Describe(value),
                     ", but the file declares another type or shape for it"));
  }
}

absl::Status ValueInference::CheckFit(const Node& node) const {
  // Other operators may omit their first output.
  if (node.op_type != "Gemm" && node.op_type != "Reshape") {
    return absl::OkStatus();
  }
  if (node.outputs[0] == kNoValue) {
    return absl::InvalidArgumentError("its output is omitted");
  }
  const InferredValue& out = values_[node.outputs[0]];
  if (node.op_type == "Gemm") {
    const Dims& a = values_[node.inputs[0]].dims;
    const Dims& b = values_[node.inputs[1]].dims;
    const int64_t a_inner = a[node.Int("transA", 0) != 0 ? 0 : 1];
    const int64_t b_inner = b[node.Int("transB", 0) != 0 ? 1 : 0];
    if (a_inner != b_inner) {
      return absl::InvalidArgumentError(
          "the inner dimensions of the product differ");
    }
    const ValueId c = node.inputs.size() > 2 ? node.inputs[2] : kNoValue;
    if (c != kNoValue && !BroadcastsTo(values_[c].dims, out.dims)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the third does not broadcast to the product, ", Describe(out)));
    }
  }
  if (node.op_type == "Reshape" && values_[node.inputs[1]].dims.size() != 1) {
    return absl::InvalidArgumentError("the second must have one dimension");
  }
  if (node.op_type == "Reshape" &&
      ElementCount(out.dims) != ElementCount(values_[node.inputs[0]].dims)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the result ", Describe(out), " has another number of elements"));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<InferredValue> InferValues(const Graph& graph,
                                       absl::Span<const Node> nodes,
                                       const onnx::GraphProto& file,
                                       absl::Span<const int> file_nodes,
                                       int64_t batch_size, BatchStyle style,
                                       std::vector<std::string>* problems,
                                       int64_t length) {
  return ValueInference(graph, file, batch_size, length, style, problems)
      .Run(nodes, file, file_nodes);
}

}  // namespace syncline
