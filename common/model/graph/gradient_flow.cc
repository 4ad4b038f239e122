#include "common/model/graph/gradient_flow.h"

#include <optional>

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"
#include "common/model/graph/graph.h"
#include "common/model/graph/operator_list.h"
#include "common/model/graph/schemas.h"

namespace syncline {
namespace {

bool IsFloat(const Graph& graph, ValueId v) {
  if (v == kNoValue) return false;
  const DType dtype = graph.values[v].dtype;
  return dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

bool HasFloat32(const Graph& graph, ValueId v) {
  return v != kNoValue && graph.values[v].dtype == DType::kFloat32;
}

bool IsDetached(const Node& node) {
  return node.op_type == "Identity" && node.Int(kDetached, 0) != 0;
}

// The derivative is 0 wherever there is one, or shall be.
bool IsStep(const Node& node) {
  if (IsDetached(node)) return true;
  constexpr absl::string_view kSteps[] = {"Ceil", "Floor", "Round", "Sign"};
  return absl::c_linear_search(kSteps, node.op_type);
}

bool IsAny(const std::vector<bool>& marked, absl::Span<const ValueId> values) {
  return absl::c_any_of(values,
                        [&](ValueId v) { return v != kNoValue && marked[v]; });
}

class LossFinder {
 public:
  LossFinder(const Graph& graph, ValueId output,
             const std::vector<bool>& is_parameter)
      : graph_(graph),
        influences_(Influences(graph, output)),
        sources_(graph.values.size(), kNoValue) {
    for (size_t v = 0; v < sources_.size(); ++v) {
      if (is_parameter[v]) sources_[v] = static_cast<ValueId>(v);
    }
  }

  std::vector<LostGradient> Find() {
    std::vector<LostGradient> lost;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (IsStep(node)) continue;
      const ValueId source = SourceOf(node);
      if (source == kNoValue) continue;
      if (std::optional<LostGradient> here = FindIn(node, source)) {
        here->node = static_cast<int>(n);
        lost.push_back(*here);
      }
      Pass(node);
    }
    return lost;
  }

 private:
  ValueId SourceOf(const Node& node) const {
    for (const ValueId v : node.inputs) {
      if (IsFloat(graph_, v) && sources_[v] != kNoValue) return sources_[v];
    }
    return kNoValue;
  }

  // Values after a node that loses a gradient are not reported too.
  void Pass(const Node& node) {
    const std::vector<bool> inputs = InputsWithGradient(graph_, node);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i] || sources_[node.inputs[i]] == kNoValue) continue;
      for (const ValueId v : OutputsWithGradient(graph_, node)) {
        sources_[v] = sources_[node.inputs[i]];
      }
      return;
    }
  }

  std::optional<LostGradient> FindIn(const Node& node, ValueId source) const {
    const std::vector<ValueId> from = OutputsWithGradient(graph_, node);
    for (const ValueId v : node.outputs) {
      if (!IsFloat(graph_, v) || !influences_[v]) continue;
      if (absl::c_linear_search(from, v)) continue;
      return LostGradient{source, 0, v, true};
    }
    if (!IsAny(influences_, from)) return std::nullopt;
    const std::vector<bool> to = InputsWithGradient(graph_, node);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId v = node.inputs[i];
      if (!IsFloat(graph_, v) || sources_[v] == kNoValue || to[i]) continue;
      return LostGradient{sources_[v], 0, v, false};
    }
    return std::nullopt;
  }

  const Graph& graph_;
  const std::vector<bool> influences_;  // by ValueId
  // By ValueId: a parameter whose gradient goes through the value.
  std::vector<ValueId> sources_;
};

}  // namespace

std::vector<bool> Influences(const Graph& graph, ValueId output) {
  std::vector<bool> influences(graph.values.size(), false);
  if (output == kNoValue) return influences;
  influences[output] = true;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if (IsStep(*node) || !IsAny(influences, node->outputs)) continue;
    for (const ValueId v : node->inputs) {
      if (IsFloat(graph, v)) influences[v] = true;
    }
  }
  return influences;
}

std::vector<bool> InputsWithGradient(const Graph& graph, const Node& node) {
  const OperatorInfo* const op = FindOperator(node.op_type);
  std::vector<bool> inputs(node.inputs.size(), false);
  if (IsDetached(node)) return inputs;
  for (size_t i = 0; i < inputs.size() && op != nullptr; ++i) {
    inputs[i] = HasPosition(op->gradient_inputs, i) &&
                HasFloat32(graph, node.inputs[i]);
  }
  return inputs;
}

std::vector<ValueId> OutputsWithGradient(const Graph& graph, const Node& node) {
  const OperatorInfo* const op = FindOperator(node.op_type);
  std::vector<ValueId> outputs;
  for (size_t i = 0; i < node.outputs.size() && op != nullptr; ++i) {
    if (HasPosition(op->gradient_outputs, i) &&
        HasFloat32(graph, node.outputs[i])) {
      outputs.push_back(node.outputs[i]);
    }
  }
  return outputs;
}

std::vector<bool> ReachedByGradient(const Graph& graph, ValueId output) {
  std::vector<bool> reached(graph.values.size(), false);
  if (output == kNoValue) return reached;
  reached[output] = true;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if (!IsAny(reached, OutputsWithGradient(graph, *node))) continue;
    const std::vector<bool> inputs = InputsWithGradient(graph, *node);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i]) reached[node->inputs[i]] = true;
    }
  }
  return reached;
}

std::vector<LostGradient> FindLostGradients(
    const Graph& graph, ValueId output, const std::vector<bool>& is_parameter) {
  return LossFinder(graph, output, is_parameter).Find();
}

}  // namespace syncline
