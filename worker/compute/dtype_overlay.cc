#include "worker/compute/dtype_overlay.h"

#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/model/graph/operator_list.h"
#include "worker/compute/type_rules.h"
#include "worker/ops/widened_op.h"

namespace syncline::worker {
namespace {

using Kind = TypeRule::Kind;

// Only ONNX's own operators are in the list.
TypeRule RuleOf(const Node& node) {
  return node.domain.empty() ? TypeRuleOf(node.op_type) : TypeRule();
}

class Planner {
 public:
  explicit Planner(const DTypeOverlaySpec& spec)
      : spec_(spec),
        is_data_(spec.graph->values.size(), false),
        stays_float32_(spec.graph->values.size(), false),
        copies_(spec.graph->values.size(), kNoValue) {
    Graph& graph = overlay_.graph;
    graph.name = spec.graph->name;
    graph.opset_version = spec.graph->opset_version;
    graph.values = spec.graph->values;
    graph.nodes = spec.graph->nodes;
    graph.inputs = spec.graph->inputs;
    graph.outputs = spec.graph->outputs;
    overlay_.flow.loss_has_gradient = spec.flow->loss_has_gradient;
    overlay_.sources.resize(graph.values.size());
    std::iota(overlay_.sources.begin(), overlay_.sources.end(), 0);
  }

  DTypeOverlay Plan() {
    FindData();
    FindFloat32();
    for (size_t p = 0; p < spec_.flow->nodes.size(); ++p) Visit(p);
    return std::move(overlay_);
  }

 private:
  const Node& NodeAt(size_t position) const {
    return spec_.graph->nodes[spec_.flow->nodes[position]];
  }
  bool IsFloat(ValueId v) const {
    return v != kNoValue && spec_.graph->values[v].dtype == DType::kFloat32;
  }
  bool IsNarrow(ValueId v) const {
    return Is16Bit(overlay_.graph.values[v].dtype);
  }

  // Marks the values that depend on the batch. The others, a bias or a factor,
  // do not decide about types.
  void FindData() {
    for (const ValueId v : spec_.data) {
      if (v != kNoValue) is_data_[v] = true;
    }
    for (size_t p = 0; p < spec_.flow->nodes.size(); ++p) {
      bool reads = false;
      for (const ValueId v : NodeAt(p).inputs) {
        reads = reads || (v != kNoValue && is_data_[v]);
      }
      for (const ValueId v : NodeAt(p).outputs) {
        if (v != kNoValue) is_data_[v] = reads;
      }
    }
  }

  // The loss's output, through views of it.
  void FindFloat32() {
    stays_float32_[spec_.loss_output] = true;
    for (size_t p = spec_.flow->nodes.size(); p-- > 0;) {
      const Node& node = NodeAt(p);
      if (RuleOf(node).kind != Kind::kIsViewOf) continue;
      if (stays_float32_[node.outputs[0]])
        stays_float32_[node.inputs[0]] = true;
    }
  }

  bool WritesNarrow(const Node& node, const TypeRule& rule) const {
    if (rule.kind == Kind::kFloat32) return false;
    if (rule.kind == Kind::kNarrow) return true;
    if (rule.kind == Kind::kIsViewOf) return IsNarrow(node.inputs[0]);
    bool any = false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId v = node.inputs[i];
      if (!HasPosition(rule.inputs, i) || !IsFloat(v) || !is_data_[v]) continue;
      if (!IsNarrow(v)) return false;
      any = true;
    }
    return any;
  }

  void Visit(size_t position) {
    const Node& node = NodeAt(position);
    const TypeRule rule = RuleOf(node);
    if (rule.kind == Kind::kNarrow) ReadCopies(position, rule.inputs);
    if (WritesNarrow(node, rule)) {
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        const ValueId v = node.outputs[i];
        if (!HasPosition(rule.outputs, i) || !IsFloat(v)) continue;
        if (!stays_float32_[v]) overlay_.graph.values[v].dtype = spec_.type;
      }
    }
    overlay_.flow.nodes.push_back(spec_.flow->nodes[position]);
    overlay_.flow.wants_gradient.push_back(
        spec_.flow->wants_gradient[position]);
  }

  void ReadCopies(size_t position, uint32_t inputs) {
    const int index = spec_.flow->nodes[position];
    for (size_t i = 0; i < NodeAt(position).inputs.size(); ++i) {
      const ValueId v = NodeAt(position).inputs[i];
      if (!HasPosition(inputs, i) || !IsFloat(v) || IsNarrow(v)) continue;
      overlay_.graph.nodes[index].inputs[i] = CopyOf(v);
    }
  }

  // Made at the position that comes next, if it is not there yet.
  ValueId CopyOf(ValueId v) {
    if (copies_[v] != kNoValue) return copies_[v];
    Graph& graph = overlay_.graph;
    const auto copy = static_cast<ValueId>(graph.values.size());
    const auto index = static_cast<int>(graph.nodes.size());
    const std::string name =
        absl::StrCat(graph.values[v].name, " in ", DTypeName(spec_.type));
    Value value = graph.values[v];
    value.name = name;
    value.kind = Value::Kind::kComputed;
    value.dtype = spec_.type;
    value.producer = index;
    value.initializer = -1;
    value.folded = false;
    graph.values.push_back(std::move(value));
    Node cast;
    cast.name = name;
    cast.op_type = kCastTo16Bits;
    cast.inputs = {v};
    cast.outputs = {copy};
    graph.nodes.push_back(std::move(cast));
    overlay_.flow.nodes.push_back(index);
    overlay_.flow.wants_gradient.push_back({false});
    overlay_.sources.push_back(v);
    copies_[v] = copy;
    return copy;
  }

  const DTypeOverlaySpec& spec_;
  DTypeOverlay overlay_;
  // By ValueId of the model:
  std::vector<bool> is_data_;
  std::vector<bool> stays_float32_;
  std::vector<ValueId> copies_;  // kNoValue: none is read
};

}  // namespace

DTypeOverlay OverlayDTypes(const DTypeOverlaySpec& spec) {
  return Planner(spec).Plan();
}

}  // namespace syncline::worker
