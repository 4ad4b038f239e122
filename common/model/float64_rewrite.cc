#include "common/model/float64_rewrite.h"

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
#include "common/model/describe.h"
#include "common/model/graph.h"
#include "common/model/onnx_file.h"
#include "common/model/schemas.h"
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

// Whether float64 is named anywhere: else there is none.
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

// Which values are of float64, and which depend on what is fed or trained.
class Float64Analysis {
 public:
  Float64Analysis(int opset_version, const onnx::GraphProto& graph)
      : opset_version_(opset_version) {
    if (!NamesDouble(graph)) return;
    Begin(graph);
    for (int round = 0; round < kRoundsMax; ++round) {
      const size_t before = wide_.size() + open_.size();
      for (const onnx::NodeProto& node : graph.node()) Visit(node);
      if (wide_.size() + open_.size() == before) break;
    }
  }

  bool IsWide(const std::string& name) const { return wide_.contains(name); }
  bool IsOpen(const std::string& name) const { return open_.contains(name); }
  bool IsComputed(const std::string& name) const {
    return IsWide(name) && IsOpen(name);
  }
  bool ComputesAny() const {
    return std::any_of(wide_.begin(), wide_.end(),
                       [&](const std::string& n) { return open_.contains(n); });
  }
  // Whether it runs in a step, of float64 or not.
  bool IsOpen(const onnx::NodeProto& node) const {
    if (node.op_type() == "Shape" || node.op_type() == "Size") return false;
    const bool by_first = node.op_type() == "CastLike";
    const int read =
        by_first ? std::min(node.input_size(), 1) : node.input_size();
    return std::any_of(node.input().begin(), node.input().begin() + read,
                       [&](const std::string& n) { return IsOpen(n); });
  }

 private:
  void Begin(const onnx::GraphProto& graph) {
    Names initializers;
    bool has_weights = false;
    for (const TensorProto& tensor : graph.initializer()) {
      initializers.insert(tensor.name());
      if (tensor.data_type() == TensorProto::FLOAT) open_.insert(tensor.name());
      if (tensor.data_type() != TensorProto::DOUBLE) continue;
      wide_.insert(tensor.name());
      for (const int64_t dim : tensor.dims()) has_weights |= dim > 1;
    }
    for (const onnx::ValueInfoProto& input : graph.input()) {
      if (initializers.contains(input.name())) continue;
      open_.insert(input.name());
      if (input.type().tensor_type().elem_type() != TensorProto::DOUBLE) {
        continue;
      }
      wide_.insert(input.name());
      has_weights = true;
    }
    if (!has_weights) return;
    for (const TensorProto& tensor : graph.initializer()) {
      if (tensor.data_type() == TensorProto::DOUBLE)
        open_.insert(tensor.name());
    }
  }

  void Visit(const onnx::NodeProto& node) {
    const bool open = IsOpen(node);
    for (int i = 0; i < node.output_size(); ++i) {
      if (node.output(i).empty()) continue;
      if (open) open_.insert(node.output(i));
      if (MakesWide(node, i)) wide_.insert(node.output(i));
    }
  }

  // Null: not supported.
  const onnx::OpSchema* SchemaOf(const std::string& op_type) {
    const auto [it, is_new] = schemas_.emplace(op_type, nullptr);
    const OperatorInfo* const op = is_new ? FindOperator(op_type) : nullptr;
    if (op != nullptr) it->second = FindSchema(*op, opset_version_);
    return it->second;
  }

  bool MakesWide(const onnx::NodeProto& node, int output) {
    if (!IsOnnx(node)) return false;
    if (node.op_type() == "Cast") {
      return CastTarget(node) == TensorProto::DOUBLE;
    }
    if (node.op_type() == "CastLike") {
      return node.input_size() > 1 && IsWide(node.input(1));
    }
    if (node.op_type() == "Constant" || node.op_type() == "ConstantOfShape") {
      const onnx::AttributeProto* const value = FindAttribute(node, "value");
      return value != nullptr && value->t().data_type() == TensorProto::DOUBLE;
    }
    const onnx::OpSchema* const schema = SchemaOf(node.op_type());
    if (schema == nullptr || schema->outputs().empty()) return false;
    const auto formal = [](const auto& list, int i) {
      return list[std::min<size_t>(i, list.size() - 1)].GetTypeStr();
    };
    const std::string type = formal(schema->outputs(), output);
    for (int i = 0; i < node.input_size() && !schema->inputs().empty(); ++i) {
      if (IsWide(node.input(i)) && formal(schema->inputs(), i) == type) {
        return true;
      }
    }
    return false;
  }

  const int opset_version_;
  absl::flat_hash_map<std::string, const onnx::OpSchema*> schemas_;
  Names wide_;
  Names open_;
};

class Float64Rewriter {
 public:
  Float64Rewriter(int opset_version, onnx::GraphProto* graph,
                  std::vector<std::string>* problems)
      : opset_version_(opset_version),
        graph_(graph),
        problems_(problems),
        analysis_(opset_version, *graph) {}

  // What is rounded, for a note.
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
    const auto tensor = TakeTensor(&copy);
    if (!tensor.ok() || !Fits(label, *tensor)) return;  // is reported later
    std::string bytes(ElementCount(tensor->dims) * sizeof(float), '\0');
    for (int64_t i = 0; i < ElementCount(tensor->dims); ++i) {
      double wide;
      std::memcpy(&wide, tensor->bytes.data() + i * sizeof(wide), sizeof(wide));
      const float narrow = static_cast<float>(wide);
      std::memcpy(&bytes[i * sizeof(narrow)], &narrow, sizeof(narrow));
    }
    WriteTensor(DType::kFloat32, tensor->dims, bytes, proto);
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
    onnx::AttributeProto* const to = cast.add_attribute();
    to->set_name("to");
    to->set_type(onnx::AttributeProto::INT);
    to->set_i(TensorProto::FLOAT);
    return narrow;
  }

  void RewriteNodes(std::vector<std::string>* rounded) {
    for (onnx::NodeProto& node : *graph_->mutable_node()) {
      if (!IsOnnx(node) || !analysis_.IsOpen(node)) continue;
      const std::string label =
          DescribeNode(node.name(), node.op_type(), opset_version_);
      const bool is_cast = node.op_type() == "Cast";
      const bool was_wide =
          node.input_size() > 0 && analysis_.IsComputed(node.input(0));
      if (is_cast && was_wide && MakesIntegers(node)) {
        Problem(label,
                ": makes integers of float64, which is computed in float32 "
                "here and would give others; cast to float32 in the model, or "
                "feed integers");
      }
      if (is_cast && CastTarget(node) == TensorProto::DOUBLE) {
        for (auto& attribute : *node.mutable_attribute()) {
          if (attribute.name() == "to") attribute.set_i(TensorProto::FLOAT);
        }
        if (!was_wide) rounded->push_back(label);
      }
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

  static bool MakesIntegers(const onnx::NodeProto& cast) {
    const int to = CastTarget(cast);
    return to != TensorProto::FLOAT && to != TensorProto::DOUBLE &&
           to != TensorProto::BOOL;
  }

  const int opset_version_;
  onnx::GraphProto* const graph_;
  std::vector<std::string>* const problems_;
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
                    std::vector<std::string>* notes) {
  const std::string rounded =
      Float64Rewriter(opset_version, graph, problems).Run();
  notes->push_back(absl::StrCat(
      "computes in float64, which is trained in float32: ", rounded));
}

}  // namespace syncline
