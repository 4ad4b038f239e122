#include "common/model/graph/graph_builder.h"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/graph/describe.h"
#include "common/model/graph/graph_input_reader.h"
#include "common/model/graph/node_reader.h"
#include "common/model/graph/onnx_file.h"
#include "common/model/graph/schemas.h"
#include "common/model/graph/topological_order.h"
#include "onnx/onnx_pb.h"

namespace syncline {
namespace {

constexpr size_t kCycleNodesShown = 20;
constexpr size_t kNamesShown = 5;
// Far above real models; bounds the work on hostile ones.
constexpr int kNodesMax = 1'000'000;

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
    absl::StrAppend(&problems_->emplace_back(), parts...);
  }

  Graph& graph() { return built_.graph; }

  // False if nothing else can be judged.
  bool CheckVersions();
  void CheckFunctions();
  void AddInitializers();
  void AddInputs();
  const Value* FindFileInitializer(const std::string& name) const;
  void CheckListedInitializer(const onnx::ValueInfoProto& input,
                              const Value& value);
  void AddNodes();
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
  std::set<NodeReader::DomainAndName> functions_;
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
    // A broken tensor is still defined, so that its users report no problem.
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
  GraphInputReader reader(initialize_, tables_, length_, *file_, problems_);
  for (const auto& input : file_->input()) {
    if (input.name().empty()) Problem("a graph input has no name");
    if (const Value* listed = FindFileInitializer(input.name())) {
      CheckListedInitializer(input, *listed);
      continue;
    }
    GraphInput read = reader.Read(input);
    const std::string label = absl::StrCat("graph input ", Quote(input.name()));
    if (read.is_declared) {
      ConstantTensor tensor;
      tensor.dims = read.value.dims;
      AddInitializer(std::move(read.value), std::move(tensor),
                     Initializer::Origin::kDeclared, label);
    } else {
      graph().inputs.push_back(Define(std::move(read.value), label));
    }
  }
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

void GraphBuilder::AddNodes() {
  if (file_->node_size() > kNodesMax) {
    Problem("the graph has ", file_->node_size(), " nodes, at most ",
            kNodesMax);
    return;
  }
  NodeReader reader(graph().opset_version, functions_, problems_);
  for (int i = 0; i < file_->node_size(); ++i) {
    Node node;
    node.op_type = file_->node(i).op_type();
    node.name = file_->node(i).name().empty()
                    ? absl::StrCat(node.op_type, "#", i)
                    : file_->node(i).name();
    const std::string label =
        DescribeNode(node.name, node.op_type, graph().opset_version);
    const bool good = reader.Read(label, file_->node(i), &node);
    if (good && node.op_type == "Constant") {
      AddConstant(node, file_->node(i).output(0), label);
    } else {
      // The outputs of a bad node are still defined. Otherwise the nodes that
      // use them would report problems that only follow from it.
      AddNode(i, std::move(node), good, label);
    }
  }
  reader.CountUnsupported();
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
    problems->emplace_back("the file has no graph");
    return {};
  }
  return GraphBuilder(initialize, tables, length, model, problems).Build();
}

}  // namespace syncline
