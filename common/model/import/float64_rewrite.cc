#include "common/model/import/float64_rewrite.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/model/graph/describe.h"
#include "common/model/graph/graph.h"
#include "common/model/graph/onnx_file.h"
#include "common/model/graph/schemas.h"
#include "onnx/defs/schema.h"
#include "onnx/onnx_pb.h"

namespace syncline {
namespace {

using onnx::TensorProto;

// A file's nodes are in order, as a rule: two rounds see that nothing changes.
constexpr int kRoundsMax = 4;
constexpr size_t kNamesShown = 5;

using Names = absl::flat_hash_set<std::string>;

bool IsOnnx(const onnx::NodeProto& node) {
  return node.domain().empty() || node.domain() == "ai.onnx";
}

const onnx::AttributeProto* FindAttribute(const onnx::NodeProto& node,
                                          absl::string_view name) {
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}

// The element type that a Cast makes.
int CastTarget(const onnx::NodeProto& node) {
  const onnx::AttributeProto* const to = FindAttribute(node, "to");
  return to == nullptr ? 0 : static_cast<int>(to->i());
}

void SetCastTarget(int type, onnx::NodeProto* cast) {
  for (onnx::AttributeProto& attribute : *cast->mutable_attribute()) {
    if (attribute.name() == "to") return attribute.set_i(type);
  }
  onnx::AttributeProto* const to = cast->add_attribute();
  to->set_name("to");
  to->set_type(onnx::AttributeProto::INT);
  to->set_i(type);
}

// True if the graph names float64 anywhere; else it has no float64 value.
bool NamesDouble(const onnx::GraphProto& graph) {
  for (const TensorProto& tensor : graph.initializer()) {
    if (tensor.data_type() == TensorProto::DOUBLE) return true;
  }
  for (const onnx::ValueInfoProto& input : graph.input()) {
    const int type = input.type().tensor_type().elem_type();
    if (type == TensorProto::DOUBLE) return true;
  }
  for (const onnx::NodeProto& node : graph.node()) {
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      const bool is_cast =
          attribute.name() == "to" && attribute.i() == TensorProto::DOUBLE;
      if (is_cast || attribute.t().data_type() == TensorProto::DOUBLE) {
        return true;
      }
    }
  }
  return false;
}

// How many of its inputs a node computes with, from the first on: the second of
// CastLike only says the type.
int ComputedInputs(const onnx::NodeProto& node) {
  const bool by_first = node.op_type() == "CastLike";
  return by_first ? std::min(node.input_size(), 1) : node.input_size();
}

// The one type that a schema allows; 0: several, or one that is nothing here.
int OnlyTypeOf(const onnx::OpSchema::FormalParameter& formal) {
  if (formal.GetTypes().size() != 1) return 0;
  const std::string& type = **formal.GetTypes().begin();
  if (type == "tensor(int64)") return TensorProto::INT64;
  if (type == "tensor(bool)") return TensorProto::BOOL;
  if (type == "tensor(float)") return TensorProto::FLOAT;
  return 0;
}

int TypeOfConstant(const onnx::NodeProto& node) {
  for (const char* const name : {"value_int", "value_ints"}) {
    if (FindAttribute(node, name) != nullptr) return TensorProto::INT64;
  }
  const onnx::AttributeProto* const value = FindAttribute(node, "value");
  return value == nullptr ? TensorProto::FLOAT : value->t().data_type();
}

// The element types of values, and which values depend on what is fed or
// trained.
class Float64Analysis {
 public:
  Float64Analysis(int opset_version, const onnx::GraphProto& graph)
      : opset_version_(opset_version) {
    if (!NamesDouble(graph)) return;
    Begin(graph);
    for (int round = 0; round < kRoundsMax; ++round) {
      const size_t before = types_.size() + open_.size();
      for (const onnx::NodeProto& node : graph.node()) Visit(node);
      if (types_.size() + open_.size() == before) break;
    }
  }

  // 0: not known.
  int TypeOf(const std::string& name) const {
    const auto found = types_.find(name);
    return found == types_.end() ? 0 : found->second;
  }
  bool IsWide(const std::string& name) const {
    return TypeOf(name) == TensorProto::DOUBLE;
  }
  bool IsOpen(const std::string& name) const { return open_.contains(name); }
  bool IsComputed(const std::string& name) const {
    return IsWide(name) && IsOpen(name);
  }
  bool ComputesAny() const {
    return std::any_of(open_.begin(), open_.end(),
                       [&](const std::string& n) { return IsWide(n); });
  }
  // True if the node runs in a step, of float64 or not.
  bool IsOpen(const onnx::NodeProto& node) const {
    if (node.op_type() == "Shape" || node.op_type() == "Size") return false;
    return std::any_of(node.input().begin(),
                       node.input().begin() + ComputedInputs(node),
                       [&](const std::string& n) { return IsOpen(n); });
  }

 private:
  void Begin(const onnx::GraphProto& graph) {
    Names initializers;
    Names computed_with;
    for (const onnx::NodeProto& node : graph.node()) {
      computed_with.insert(node.input().begin(),
                           node.input().begin() + ComputedInputs(node));
    }
    for (const onnx::ValueInfoProto& output : graph.output()) {
      computed_with.insert(output.name());
    }
    bool has_weights = false;
    for (const TensorProto& tensor : graph.initializer()) {
      initializers.insert(tensor.name());
      SetType(tensor.name(), tensor.data_type());
      if (tensor.data_type() == TensorProto::FLOAT) open_.insert(tensor.name());
      if (tensor.data_type() != TensorProto::DOUBLE) continue;
      if (!computed_with.contains(tensor.name())) continue;
      for (const int64_t dim : tensor.dims()) has_weights |= dim > 1;
    }
    for (const onnx::ValueInfoProto& input : graph.input()) {
      if (initializers.contains(input.name())) continue;
      open_.insert(input.name());
      const int type = input.type().tensor_type().elem_type();
      SetType(input.name(), type);
      has_weights |= type == TensorProto::DOUBLE;
    }
    if (!has_weights) return;
    for (const TensorProto& tensor : graph.initializer()) {
      if (tensor.data_type() == TensorProto::DOUBLE &&
          computed_with.contains(tensor.name())) {
        open_.insert(tensor.name());
      }
    }
  }

  void SetType(const std::string& name, int type) {
    if (type != 0) types_.emplace(name, type);
  }

  void Visit(const onnx::NodeProto& node) {
    const bool open = IsOpen(node);
    for (int i = 0; i < node.output_size(); ++i) {
      if (node.output(i).empty()) continue;
      if (open) open_.insert(node.output(i));
      SetType(node.output(i), TypeMadeBy(node, i));
    }
  }

  // Null: not supported.
  const onnx::OpSchema* SchemaOf(const std::string& op_type) {
    const auto [it, is_new] = schemas_.emplace(op_type, nullptr);
    const OperatorInfo* const op = is_new ? FindOperator(op_type) : nullptr;
    if (op != nullptr) it->second = FindSchema(*op, opset_version_);
    return it->second;
  }

  // 0: not known, or not yet.
  int TypeMadeBy(const onnx::NodeProto& node, int output) {
    if (!IsOnnx(node)) return 0;
    if (node.op_type() == "Cast") return CastTarget(node);
    if (node.op_type() == "CastLike") {
      return node.input_size() > 1 ? TypeOf(node.input(1)) : 0;
    }
    if (node.op_type() == "Constant" || node.op_type() == "ConstantOfShape") {
      return TypeOfConstant(node);
    }
    const onnx::OpSchema* const schema = SchemaOf(node.op_type());
    if (schema == nullptr || schema->outputs().empty()) return 0;
    const auto formal = [](const auto& list, int i) -> const auto& {
      return list[std::min<size_t>(i, list.size() - 1)];
    };
    const auto& made = formal(schema->outputs(), output);
    for (int i = 0; i < node.input_size() && !schema->inputs().empty(); ++i) {
      const int known = TypeOf(node.input(i));
      const auto& read = formal(schema->inputs(), i);
      if (known != 0 && read.GetTypeStr() == made.GetTypeStr()) return known;
    }
    return OnlyTypeOf(made);
  }

  const int opset_version_;
  absl::flat_hash_map<std::string, const onnx::OpSchema*> schemas_;
  absl::flat_hash_map<std::string, int> types_;  // ONNX's numbers, by value
  Names open_;
};

class Float64Rewriter {
 public:
  Float64Rewriter(int opset_version, onnx::GraphProto* graph,
                  std::vector<std::string>* problems,
                  ExactContents* exact_contents)
      : opset_version_(opset_version),
        graph_(graph),
        problems_(problems),
        exact_contents_(exact_contents),
        analysis_(opset_version, *graph) {}

  // Rewrites the graph. Returns a note of the values that are rounded; empty:
  // none.
  std::string Run() {
    IndexConstants();
    std::vector<std::string> rounded;
    for (TensorProto& tensor : *graph_->mutable_initializer()) {
      if (!analysis_.IsComputed(tensor.name())) continue;
      rounded.push_back(absl::StrCat("initializer ", Quote(tensor.name())));
      NarrowTensor(rounded.back(), &tensor);
    }
    const Names initializers(rounded.begin(), rounded.end());
    for (onnx::ValueInfoProto& input : *graph_->mutable_input()) {
      // Files of IR version 3 list initializers here too.
      const std::string name = Quote(input.name());
      const bool is_input =
          Narrow(&input) &&
          !initializers.contains(absl::StrCat("initializer ", name));
      if (is_input) {
        rounded.insert(rounded.begin(), absl::StrCat("graph input ", name));
      }
    }
    for (auto& output : *graph_->mutable_output()) Narrow(&output);
    for (auto& value : *graph_->mutable_value_info()) Narrow(&value);
    RewriteNodes(&rounded);
    const size_t shown = std::min(rounded.size(), kNamesShown);
    std::string names =
        absl::StrJoin(absl::MakeConstSpan(rounded).first(shown), ", ");
    if (shown < rounded.size()) {
      absl::StrAppend(&names, " and ", rounded.size() - shown, " more");
    }
    return names;
  }

 private:
  template <typename... Parts>
  void Problem(const Parts&... parts) {
    problems_->push_back(absl::StrCat(parts...));
  }

  bool Narrow(onnx::ValueInfoProto* value) const {
    if (!analysis_.IsComputed(value->name())) return false;
    value->mutable_type()->mutable_tensor_type()->set_elem_type(
        TensorProto::FLOAT);
    return true;
  }

  // False: a number that float32 does not have.
  bool Fits(const std::string& label, const ConstantTensor& tensor) {
    for (size_t at = 0; at + sizeof(double) <= tensor.bytes.size();
         at += sizeof(double)) {
      double value;
      std::memcpy(&value, tensor.bytes.data() + at, sizeof(value));
      if (!std::isfinite(value) ||
          std::fabs(value) <= std::numeric_limits<float>::max()) {
        continue;
      }
      Problem(label, ": float64 is trained as float32, which has no ", value);
      return false;
    }
    return true;
  }

  void NarrowTensor(const std::string& label, TensorProto* proto) {
    TensorProto copy = *proto;
    auto tensor = TakeTensor(&copy);
    if (!tensor.ok() || !Fits(label, *tensor)) return;  // is reported later
    std::string bytes(ElementCount(tensor->dims) * sizeof(float), '\0');
    bool is_exact = true;
    for (int64_t i = 0; i < ElementCount(tensor->dims); ++i) {
      double wide;
      std::memcpy(&wide, tensor->bytes.data() + i * sizeof(wide), sizeof(wide));
      const float narrow = static_cast<float>(wide);
      is_exact &= double{narrow} == wide;
      std::memcpy(&bytes[i * sizeof(narrow)], &narrow, sizeof(narrow));
    }
    WriteTensor(DType::kFloat32, tensor->dims, bytes, proto);
    if (!is_exact) (*exact_contents_)[proto->name()] = std::move(tensor->bytes);
  }

  void IndexConstants() {
    for (const TensorProto& tensor : graph_->initializer()) {
      constants_[tensor.name()] = &tensor;
    }
    for (const onnx::NodeProto& node : graph_->node()) {
      if (node.op_type() != "Constant" || node.output_size() != 1) continue;
      const onnx::AttributeProto* const value = FindAttribute(node, "value");
      if (value != nullptr) constants_[node.output(0)] = &value->t();
    }
  }

  void CheckConstant(const std::string& label, const std::string& name) {
    const auto found = constants_.find(name);
    if (found == constants_.end()) return;
    TensorProto copy = *found->second;
    const auto tensor = TakeTensor(&copy);
    if (tensor.ok()) Fits(label, *tensor);
  }

  // The name of what is known before training, as float32.
  std::string Narrowed(const std::string& label, const std::string& name) {
    std::string narrow = absl::StrCat(name, "/float32");
    if (!narrowed_.insert(name).second) return narrow;
    CheckConstant(label, name);
    onnx::NodeProto& cast = added_.emplace_back();
    cast.set_op_type("Cast");
    cast.set_name(narrow);
    cast.add_input(name);
    cast.add_output(narrow);
    SetCastTarget(TensorProto::FLOAT, &cast);
    return narrow;
  }

  void RewriteNodes(std::vector<std::string>* rounded) {
    for (onnx::NodeProto& node : *graph_->mutable_node()) {
      if (!IsOnnx(node)) continue;
      const std::string label =
          DescribeNode(node.name(), node.op_type(), opset_version_);
      ResolveCastLike(&node);
      if (!analysis_.IsOpen(node)) continue;
      if (node.op_type() == "Cast") RewriteCast(label, &node, rounded);
      for (std::string& input : *node.mutable_input()) {
        if (analysis_.IsWide(input) && !analysis_.IsOpen(input)) {
          input = Narrowed(label, input);
        }
      }
    }
    for (onnx::NodeProto& node : added_) {
      *graph_->add_node() = std::move(node);
    }
  }

  // A CastLike from or to float64 becomes a Cast, because the tensor that gives
  // its type may become float32.
  void ResolveCastLike(onnx::NodeProto* node) const {
    if (node->op_type() != "CastLike" || node->input_size() != 2) return;
    const int to = analysis_.TypeOf(node->input(1));
    const bool matters = to == TensorProto::DOUBLE ||
                         (to != 0 && analysis_.IsComputed(node->input(0)));
    if (!matters) return;
    node->set_op_type("Cast");
    node->mutable_input()->RemoveLast();
    SetCastTarget(to, node);
  }

  void RewriteCast(const std::string& label, onnx::NodeProto* node,
                   std::vector<std::string>* rounded) {
    const bool was_wide =
        node->input_size() > 0 && analysis_.IsComputed(node->input(0));
    if (was_wide && MakesIntegers(*node)) {
      Problem(label,
              ": makes integers of float64, which is computed in float32 "
              "here and would give others; cast to float32 in the model, or "
              "feed integers");
    }
    if (CastTarget(*node) == TensorProto::DOUBLE) {
      SetCastTarget(TensorProto::FLOAT, node);
      if (!was_wide) rounded->push_back(label);
    }
  }

  static bool MakesIntegers(const onnx::NodeProto& cast) {
    const int to = CastTarget(cast);
    return to != TensorProto::FLOAT && to != TensorProto::DOUBLE &&
           to != TensorProto::BOOL;
  }

  const int opset_version_;
  onnx::GraphProto* const graph_;
  std::vector<std::string>* const problems_;
  ExactContents* const exact_contents_;
  const Float64Analysis analysis_;
  absl::flat_hash_map<std::string, const TensorProto*> constants_;
  Names narrowed_;
  std::vector<onnx::NodeProto> added_;
};

}  // namespace

bool ComputesInFloat64(int opset_version, const onnx::GraphProto& graph) {
  return Float64Analysis(opset_version, graph).ComputesAny();
}

void RewriteFloat64(int opset_version, onnx::GraphProto* graph,
                    std::vector<std::string>* problems,
                    std::vector<std::string>* notes,
                    ExactContents* exact_contents) {
  const std::string rounded =
      Float64Rewriter(opset_version, graph, problems, exact_contents).Run();
  notes->push_back(absl::StrCat(
      "computes in float64, which is trained in float32: ", rounded));
}

}  // namespace syncline
