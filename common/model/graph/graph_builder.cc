#include "common/model/graph/graph_builder.h"

#include <algorithm>
#include <exception>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/model/graph/describe.h"
#include "common/model/graph/onnx_file.h"
#include "common/model/graph/schemas.h"
#include "common/model/graph/topological_order.h"
#include "onnx/defs/schema.h"
#include "onnx/onnx_pb.h"

namespace syncline {
namespace {

constexpr size_t kCycleNodesShown = 20;
constexpr size_t kNamesShown = 5;
// Far above real models; bounds the work on hostile ones.
constexpr int kNodesMax = 1'000'000;

bool IsOnnxDomain(absl::string_view domain) {
  return domain.empty() || domain == "ai.onnx";
}

absl::StatusOr<Attribute> ReadAttribute(onnx::AttributeProto* attribute) {
  using A = onnx::AttributeProto;
  if (attribute->has_ref_attr_name()) {
    return absl::InvalidArgumentError("refers to a function's attribute");
  }
  switch (attribute->type()) {
    case A::INT:
      return Attribute(int64_t{attribute->i()});
    case A::FLOAT:
      return Attribute(attribute->f());
    case A::STRING:
      return Attribute(attribute->s());
    case A::INTS:
      return Attribute(std::vector<int64_t>(attribute->ints().begin(),
                                            attribute->ints().end()));
    case A::FLOATS:
      return Attribute(std::vector<float>(attribute->floats().begin(),
                                          attribute->floats().end()));
    case A::STRINGS:
      return Attribute(std::vector<std::string>(attribute->strings().begin(),
                                                attribute->strings().end()));
    case A::TENSOR: {
      // A copy: the file's node keeps its tensor, for export.
      onnx::TensorProto copy = attribute->t();
      absl::StatusOr<ConstantTensor> tensor = TakeTensor(&copy);
      if (!tensor.ok()) return tensor.status();
      return Attribute(*std::move(tensor));
    }
    default:
      return absl::InvalidArgumentError("is of a type that is not supported");
  }
}

template <typename T>
ConstantTensor MakeTensor(DType dtype, Dims dims, absl::Span<const T> values) {
  return {dtype, std::move(dims),
          std::string(reinterpret_cast<const char*>(values.data()),
                      values.size() * sizeof(T))};
}

// The tensor that a Constant node stands for.
absl::StatusOr<ConstantTensor> ConstantValue(const Node& node) {
  if (node.attributes.size() != 1) {
    return absl::InvalidArgumentError("needs exactly one value attribute");
  }
  const auto& [name, value] = *node.attributes.begin();
  if (const auto* tensor = std::get_if<ConstantTensor>(&value)) return *tensor;
  if (const auto* i = std::get_if<int64_t>(&value)) {
    return MakeTensor<int64_t>(DType::kInt64, {}, absl::MakeSpan(i, 1));
  }
  if (const auto* f = std::get_if<float>(&value)) {
    return MakeTensor<float>(DType::kFloat32, {}, absl::MakeSpan(f, 1));
  }
  if (const auto* ints = std::get_if<std::vector<int64_t>>(&value)) {
    return MakeTensor<int64_t>(DType::kInt64,
                               {static_cast<int64_t>(ints->size())}, *ints);
  }
  if (const auto* floats = std::get_if<std::vector<float>>(&value)) {
    return MakeTensor<float>(DType::kFloat32,
                             {static_cast<int64_t>(floats->size())}, *floats);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("attribute ", Quote(name), " is not supported"));
}

bool IsEmptyList(const onnx::AttributeProto& attribute) {
  using A = onnx::AttributeProto;
  return (attribute.type() == A::INTS && attribute.ints_size() == 0) ||
         (attribute.type() == A::FLOATS && attribute.floats_size() == 0);
}

bool HasEmptyList(const onnx::NodeProto& node) {
  return absl::c_any_of(node.attribute(), IsEmptyList);
}

// libonnx takes an empty list for a missing one.
onnx::NodeProto WithoutEmptyLists(const onnx::NodeProto& node) {
  onnx::NodeProto copy = node;
  auto* const attributes = copy.mutable_attribute();
  attributes->erase(
      std::remove_if(attributes->begin(), attributes->end(), IsEmptyList),
      attributes->end());
  return copy;
}

class GraphBuilder {
 public:
  GraphBuilder(absl::Span<const std::string> initialize,
               absl::Span<const std::string> tables,
               const LengthDimension& length, onnx::ModelProto* model,
               std::vector<std::string>* problems)
      : initialize_(initialize),
        tables_(tables),
        length_(length),
        model_(model),
        file_(model->mutable_graph()),
        problems_(problems) {}

  BuiltGraph Build() {
    if (!CheckVersions()) return {};
    built_.graph.name = file_->name();
    AddInitializers();
    AddInputs();
    AddNodes();
    ConnectInputs();
    SortNodes();
    AddOutputs();
    return std::move(built_);
  }

 private:
  // A node of the file that is a node of the graph too, in file order.
  struct PendingNode {
    int file_index = 0;
    Node node;
    bool good = true;
  };

  template <typename... Parts>
  void Problem(const Parts&... parts) {
    problems_->push_back(absl::StrCat(parts...));
  }

  Graph& graph() { return built_.graph; }

  // False if nothing else can be judged.
  bool CheckVersions();
  void CheckFunctions();
  void AddInitializers();
  void AddInputs();
  void AddInput(const onnx::ValueInfoProto& input);
  // Sets dimensions and length_mask.
  bool ReadInputDims(const onnx::ValueInfoProto& input, Value* value);
  bool IsLength(const onnx::TensorShapeProto::Dimension& dim) const {
    return !length_.symbol.empty() && dim.dim_param() == length_.symbol;
  }
  bool IsTable(const Value& value) const;
  bool IsDeclared(const Value& value) const;
  const Value* FindFileInitializer(const std::string& name) const;
  void CheckListedInitializer(const onnx::ValueInfoProto& input,
                              const Value& value);
  void AddNodes();
  // Fills what the node says about itself; false, with problems, if it is bad.
  bool ReadNode(const std::string& label, onnx::NodeProto* file_node,
                Node* node);
  // Once for each operator: its other nodes are counted.
  void ReportUnknown(const std::string& label, const onnx::NodeProto& node);
  bool AddAttributes(onnx::NodeProto* file_node, const std::string& label,
                     Node* node);
  // Counts of inputs and outputs, names and types of attributes.
  bool Verify(const onnx::OpSchema& schema, const onnx::NodeProto& file_node,
              const std::string& label);
  void AddConstant(const Node& node, const std::string& output,
                   const std::string& label);
  void AddNode(int file_index, Node node, bool good, const std::string& label);
  void ConnectInputs();
  void SortNodes();
  void AddOutputs();

  // Adds a value. A name that is taken is a problem; it keeps its first
  // meaning.
  ValueId Define(Value value, const std::string& definer);
  void AddInitializer(Value value, ConstantTensor tensor,
                      Initializer::Origin origin, const std::string& definer);

  const absl::Span<const std::string> initialize_;
  const absl::Span<const std::string> tables_;
  const LengthDimension& length_;
  onnx::ModelProto* const model_;
  onnx::GraphProto* const file_;
  std::vector<std::string>* const problems_;
  BuiltGraph built_;
  std::vector<PendingNode> pending_;
  absl::flat_hash_map<std::string, ValueId> by_name_;
  std::vector<std::string> definers_;  // by ValueId
  std::string batch_symbol_;

  // Of operators that are not supported: where in *problems_, and how many.
  struct Unknown {
    size_t problem = 0;
    int nodes = 0;
  };
  using DomainAndName = std::pair<std::string, std::string>;
  std::map<DomainAndName, Unknown> unknown_;
  std::set<DomainAndName> functions_;
};

bool GraphBuilder::CheckVersions() {
  if (model_->ir_version() < kIrVersionMin ||
      model_->ir_version() > kIrVersionMax) {
    Problem("ir_version ", model_->ir_version(), " is outside ", kIrVersionMin,
            "..", kIrVersionMax);
  }
  int64_t opset = 0;
  int imports = 0;
  for (const auto& import : model_->opset_import()) {
    if (!IsOnnxDomain(import.domain())) continue;
    opset = import.version();
    ++imports;
  }
  if (imports != 1) {
    Problem("the file imports ONNX's operator set ", imports,
            " times, must be once");
    return false;
  }
  if (opset < kOpsetMin || opset > kOpsetMax) {
    Problem("opset ", opset, " is outside ", kOpsetMin, "..", kOpsetMax,
            "; export the model with one of these");
    return false;
  }
  graph().opset_version = static_cast<int>(opset);
  CheckFunctions();
  if (file_->sparse_initializer_size() > 0) {
    Problem("sparse initializers are not supported");
  }
  return true;
}

void GraphBuilder::CheckFunctions() {
  std::vector<std::string> names;
  for (const onnx::FunctionProto& function : model_->functions()) {
    functions_.emplace(function.domain(), function.name());
    if (names.size() == kNamesShown) {
      names.push_back("...");
    } else if (names.size() < kNamesShown) {
      names.push_back(
          Quote(absl::StrCat(function.domain(), ".", function.name())));
    }
  }
  if (names.empty()) return;
  Problem("the file has functions of its own, ", absl::StrJoin(names, ", "),
          ", which are not supported; inline them (onnx.inliner."
          "inline_local_functions) or export with optimize=True");
}

ValueId GraphBuilder::Define(Value value, const std::string& definer) {
  const ValueId id = static_cast<ValueId>(graph().values.size());
  const auto [it, inserted] = by_name_.emplace(value.name, id);
  if (!inserted) {
    Problem(Quote(value.name), " is defined twice, by ", definers_[it->second],
            " and by ", definer);
    return it->second;
  }
  definers_.push_back(definer);
  graph().values.push_back(std::move(value));
  return id;
}

void GraphBuilder::AddInitializer(Value value, ConstantTensor tensor,
                                  Initializer::Origin origin,
                                  const std::string& definer) {
  value.kind = Value::Kind::kInitializer;
  value.dtype = tensor.dtype;
  value.dims = tensor.dims;
  value.initializer = static_cast<int32_t>(graph().initializers.size());
  const size_t values_before = graph().values.size();
  const ValueId id = Define(std::move(value), definer);
  if (graph().values.size() == values_before) return;  // defined before
  graph().initializers.push_back({id, std::move(tensor), origin});
}

void GraphBuilder::AddInitializers() {
  // Files outside, and what has its values there.
  std::map<std::string, std::vector<std::string>> elsewhere;
  // All weights of a model may be of a type that is not built.
  std::map<std::string, std::vector<std::string>> not_built;
  for (onnx::TensorProto& proto : *file_->mutable_initializer()) {
    const std::string label = absl::StrCat("initializer ", Quote(proto.name()));
    if (proto.name().empty()) Problem("an initializer has no name");
    const bool is_here = HasValuesInside(proto);
    absl::StatusOr<ConstantTensor> tensor = TakeTensor(&proto);
    if (!is_here) {
      elsewhere[ExternalLocation(proto)].push_back(label);
    } else if (const auto type = DTypeFromOnnx(proto.data_type()); !type.ok()) {
      not_built[std::string(type.status().message())].push_back(label);
    } else if (!tensor.ok()) {
      Problem(label, ": ", tensor.status().message());
    }
    Value value;
    value.name = proto.name();
    value.known = tensor.ok();
    // A broken one is defined all the same: its users are not to blame.
    AddInitializer(std::move(value),
                   tensor.ok() ? *std::move(tensor) : ConstantTensor(),
                   Initializer::Origin::kFile, label);
  }
  for (const auto& [file, labels] : elsewhere) {
    Problem(labels[0],
            labels.size() == 1
                ? std::string(" has its")
                : absl::StrCat(" and ", labels.size() - 1, " more have their"),
            " values in another file, ", Quote(file),
            "; export with external_data=False, or save the model with all "
            "weights inside");
  }
  for (const auto& [why, labels] : not_built) {
    Problem(labels[0],
            labels.size() == 1
                ? ""
                : absl::StrCat(" and ", labels.size() - 1, " more"),
            ": ", why);
  }
}

void GraphBuilder::AddInputs() {
  // The symbol of the batch dimension may be used by an earlier input too.
  for (const auto& input : file_->input()) {
    const auto& shape = input.type().tensor_type().shape();
    if (batch_symbol_.empty() && shape.dim_size() > 0 &&
        !IsLength(shape.dim(0)) &&
        !absl::c_linear_search(tables_, input.name())) {
      batch_symbol_ = shape.dim(0).dim_param();
    }
  }
  for (const auto& input : file_->input()) AddInput(input);
}

void GraphBuilder::AddInput(const onnx::ValueInfoProto& input) {
  const std::string label = absl::StrCat("graph input ", Quote(input.name()));
  if (input.name().empty()) Problem("a graph input has no name");
  if (const Value* listed = FindFileInitializer(input.name())) {
    CheckListedInitializer(input, *listed);
    return;
  }
  Value value;
  value.name = input.name();
  value.kind = Value::Kind::kInput;
  bool readable = false;
  if (!input.type().has_tensor_type()) {
    Problem(label, " is not a tensor");
  } else if (const auto dtype =
                 DTypeFromOnnx(input.type().tensor_type().elem_type());
             !dtype.ok()) {
    Problem(label, ": ", dtype.status().message());
  } else {
    value.dtype = *dtype;
    readable = ReadInputDims(input, &value);
  }
  // The open first dimension of a table is its number of rows, not a batch.
  const bool is_table = readable && IsTable(value);
  if (is_table && value.dims[0] == kBatchDim) value.dims[0] = 0;
  if (is_table || (readable && IsDeclared(value))) {
    ConstantTensor tensor;
    tensor.dims = value.dims;
    AddInitializer(std::move(value), std::move(tensor),
                   Initializer::Origin::kDeclared, label);
    return;
  }
  value.known = readable;
  const ValueId id = Define(std::move(value), label);
  graph().inputs.push_back(id);
}

const Value* GraphBuilder::FindFileInitializer(const std::string& name) const {
  const auto it = by_name_.find(name);
  if (it == by_name_.end()) return nullptr;
  const Value& value = built_.graph.values[it->second];
  if (value.initializer < 0) return nullptr;
  const Initializer& found = built_.graph.initializers[value.initializer];
  return found.origin == Initializer::Origin::kFile ? &value : nullptr;
}

// Files of IR version 3 list every initializer as a graph input.
void GraphBuilder::CheckListedInitializer(const onnx::ValueInfoProto& input,
                                          const Value& value) {
  if (!Allows(input.type().tensor_type(), value.dtype, value.dims)) {
    Problem("graph input ", Quote(input.name()),
            " has another type or shape than its initializer, ",
            DescribeTensor(value.dtype, value.dims));
  }
}

bool GraphBuilder::ReadInputDims(const onnx::ValueInfoProto& input,
                                 Value* value) {
  Dims* const dims = &value->dims;
  const std::string label = absl::StrCat("graph input ", Quote(input.name()));
  if (!input.type().tensor_type().has_shape()) {
    Problem(label, " has no shape");
    return false;
  }
  for (const auto& dim : input.type().tensor_type().shape().dim()) {
    if (dim.has_dim_value() && dim.dim_value() > 0) {
      dims->push_back(dim.dim_value());
      continue;
    }
    if (IsLength(dim)) {
      if (dims->empty()) {
        Problem(label, ": its first dimension is the batch, but ",
                Quote(length_.symbol), " is the length of samples");
        return false;
      }
      value->length_mask |= 1u << std::min<size_t>(dims->size(), 31);
      dims->push_back(length_.longest);
      continue;
    }
    const bool is_batch = dims->empty() || (!dim.dim_param().empty() &&
                                            dim.dim_param() == batch_symbol_);
    if (!is_batch) {
      Problem(label, ": dimension ", dims->size(), " is open (",
              Quote(dim.has_dim_value() ? absl::StrCat(dim.dim_value())
                                        : dim.dim_param()),
              "); only the first, the batch, may be",
              length_.symbol.empty()
                  ? ", and one that data.buckets names"
                  : absl::StrCat(", and ", Quote(length_.symbol),
                                 ", the length of samples"));
      return false;
    }
    dims->push_back(kBatchDim);
  }
  if (!WithinLimits(*dims)) {
    Problem(label, ": shape ", DimsToString(*dims), " is too large");
    return false;
  }
  return true;
}

bool GraphBuilder::IsTable(const Value& value) const {
  return value.dtype == DType::kFloat32 && value.dims.size() == 2 &&
         value.length_mask == 0 && value.dims[1] != kBatchDim &&
         absl::c_linear_search(tables_, value.name);
}

bool GraphBuilder::IsDeclared(const Value& value) const {
  if (value.dtype != DType::kFloat32 || value.length_mask != 0 ||
      absl::c_linear_search(value.dims, kBatchDim)) {
    return false;
  }
  return std::any_of(initialize_.begin(), initialize_.end(),
                     [&](const std::string& pattern) {
                       return MatchesPattern(pattern, value.name);
                     });
}

void GraphBuilder::AddNodes() {
  if (file_->node_size() > kNodesMax) {
    Problem("the graph has ", file_->node_size(), " nodes, at most ",
            kNodesMax);
    return;
  }
  for (int i = 0; i < file_->node_size(); ++i) {
    Node node;
    node.op_type = file_->node(i).op_type();
    node.name = file_->node(i).name().empty()
                    ? absl::StrCat(node.op_type, "#", i)
                    : file_->node(i).name();
    const std::string label =
        DescribeNode(node.name, node.op_type, graph().opset_version);
    const bool good = ReadNode(label, file_->mutable_node(i), &node);
    if (good && node.op_type == "Constant") {
      AddConstant(node, file_->node(i).output(0), label);
    } else {
      // The outputs of a bad node are defined all the same: a problem of the
      // nodes that use them would only follow from it.
      AddNode(i, std::move(node), good, label);
    }
  }
  for (const auto& [op, unknown] : unknown_) {
    if (unknown.nodes == 1) continue;
    absl::StrAppend(&(*problems_)[unknown.problem], " (and ", unknown.nodes - 1,
                    " more nodes of it)");
  }
}

void GraphBuilder::ReportUnknown(const std::string& label,
                                 const onnx::NodeProto& node) {
  Unknown& unknown = unknown_[{node.domain(), node.op_type()}];
  if (unknown.nodes++ > 0) return;
  unknown.problem = problems_->size();
  const std::string message =
      absl::StrCat(label, ": the operator is not supported");
  if (!IsOnnxDomain(node.domain())) {
    Problem(message, " (domain ", Quote(node.domain()), ")");
    return;
  }
  if (const OperatorInfo* const op = FindOperator(node.op_type())) {
    Problem(message, " at this opset; ONNX has it from opset ", op->versions[0],
            " on");
    return;
  }
  const bool has_graph =
      absl::c_any_of(node.attribute(),
                     [](const onnx::AttributeProto& a) { return a.has_g(); });
  if (has_graph) {
    Problem(message,
            ": a node with a graph inside is not trained; PyTorch's exporter "
            "writes fewer of them with dynamo=True");
    return;
  }
  const std::vector<std::string> like = OperatorsLike(node.op_type());
  Problem(message, like.empty() ? "" : "; did you mean ",
          absl::StrJoin(like, " or "), like.empty() ? "" : "?");
}

bool GraphBuilder::ReadNode(const std::string& label,
                            onnx::NodeProto* file_node, Node* node) {
  const bool is_onnx = IsOnnxDomain(file_node->domain());
  const OperatorInfo* op = is_onnx ? FindOperator(node->op_type) : nullptr;
  const onnx::OpSchema* schema =
      op == nullptr ? nullptr : FindSchema(*op, graph().opset_version);
  if (schema == nullptr) {
    const bool is_function = functions_.contains(
        std::make_pair(file_node->domain(), file_node->op_type()));
    // Functions have been reported.
    if (!is_function) ReportUnknown(label, *file_node);
    return false;
  }
  node->since_version = SinceVersion(*op, graph().opset_version);
  return AddAttributes(file_node, label, node) &&
         Verify(*schema, *file_node, label);
}

void GraphBuilder::AddNode(int file_index, Node node, bool good,
                           const std::string& label) {
  for (const std::string& name : file_->node(file_index).output()) {
    if (name.empty()) {
      node.outputs.push_back(kNoValue);
      continue;
    }
    Value value;
    value.name = name;
    value.producer = static_cast<int32_t>(pending_.size());
    const ValueId id = Define(std::move(value), label);
    good &= graph().values[id].producer == static_cast<int>(pending_.size());
    node.outputs.push_back(id);
  }
  pending_.push_back({file_index, std::move(node), good});
}

bool GraphBuilder::AddAttributes(onnx::NodeProto* file_node,
                                 const std::string& label, Node* node) {
  bool good = true;
  for (onnx::AttributeProto& attribute : *file_node->mutable_attribute()) {
    absl::StatusOr<Attribute> value = ReadAttribute(&attribute);
    if (!value.ok()) {
      Problem(label, ": attribute ", Quote(attribute.name()), " ",
              value.status().message());
      good = false;
    } else if (!node->attributes.emplace(attribute.name(), *std::move(value))
                    .second) {
      Problem(label, ": attribute ", Quote(attribute.name()),
              " is given twice");
      good = false;
    }
  }
  return good;
}

bool GraphBuilder::Verify(const onnx::OpSchema& schema,
                          const onnx::NodeProto& file_node,
                          const std::string& label) {
  try {
    schema.Verify(HasEmptyList(file_node) ? WithoutEmptyLists(file_node)
                                          : file_node);
    return true;
  } catch (const std::exception& e) {
    Problem(label, ": ", e.what());
    return false;
  }
}

void GraphBuilder::AddConstant(const Node& node, const std::string& output,
                               const std::string& label) {
  absl::StatusOr<ConstantTensor> tensor = ConstantValue(node);
  if (!tensor.ok()) Problem(label, ": ", tensor.status().message());
  Value value;
  value.name = output;
  value.known = tensor.ok();
  AddInitializer(std::move(value),
                 tensor.ok() ? *std::move(tensor) : ConstantTensor(),
                 Initializer::Origin::kConstant, label);
}

void GraphBuilder::ConnectInputs() {
  for (PendingNode& pending : pending_) {
    for (const std::string& name : file_->node(pending.file_index).input()) {
      ValueId id = kNoValue;
      if (!name.empty()) {
        const auto it = by_name_.find(name);
        if (it != by_name_.end()) {
          id = it->second;
        } else {
          Problem(DescribeNode(pending.node.name, pending.node.op_type,
                               graph().opset_version),
                  ": input ", Quote(name), " is not defined anywhere");
          pending.good = false;
        }
      }
      pending.node.inputs.push_back(id);
    }
  }
}

void GraphBuilder::SortNodes() {
  std::vector<std::vector<int>> predecessors(pending_.size());
  for (size_t i = 0; i < pending_.size(); ++i) {
    for (ValueId input : pending_[i].node.inputs) {
      if (input == kNoValue || graph().values[input].producer < 0) continue;
      predecessors[i].push_back(graph().values[input].producer);
    }
  }
  const TopologicalOrder sorted = SortTopologically(predecessors);
  if (!sorted.cycle.empty()) {
    std::vector<std::string> path;
    for (int i : sorted.cycle) {
      if (path.size() == kCycleNodesShown) {
        path.push_back("...");
        break;
      }
      path.push_back(Quote(pending_[i].node.name));
    }
    path.push_back(path.front());
    Problem("the graph has a cycle: ", absl::StrJoin(path, " -> "));
  }
  std::vector<int32_t> new_index(pending_.size(), -1);
  for (int i : sorted.order) {
    new_index[i] = static_cast<int32_t>(graph().nodes.size());
    built_.file_nodes.push_back(pending_[i].good ? pending_[i].file_index
                                                 : BuiltGraph::kBadNode);
    graph().nodes.push_back(std::move(pending_[i].node));
  }
  for (Value& value : graph().values) {
    if (value.producer >= 0) value.producer = new_index[value.producer];
  }
}

void GraphBuilder::AddOutputs() {
  if (file_->output_size() == 0) Problem("the graph has no output");
  for (const auto& output : file_->output()) {
    const auto it = by_name_.find(output.name());
    if (it == by_name_.end()) {
      Problem("graph output ", Quote(output.name()),
              " is not defined anywhere");
      Value value;
      value.name = output.name();
      value.known = false;
      graph().outputs.push_back(Define(std::move(value), "the outputs"));
      continue;
    }
    graph().outputs.push_back(it->second);
  }
}

}  // namespace

BuiltGraph BuildGraph(absl::Span<const std::string> initialize,
                      onnx::ModelProto* model,
                      std::vector<std::string>* problems,
                      absl::Span<const std::string> tables,
                      const LengthDimension& length) {
  if (!model->has_graph()) {
    problems->push_back("the file has no graph");
    return {};
  }
  return GraphBuilder(initialize, tables, length, model, problems).Build();
}

}  // namespace syncline
