#include "worker/compute/backward_graph.h"

#include <algorithm>

#include "common/model/graph/gradient_flow.h"
#include "common/model/graph/graph.h"

namespace syncline::worker {
namespace {

std::vector<int> NodesBefore(const Graph& graph, ValueId output) {
  std::vector<bool> needed(graph.values.size(), false);
  needed[output] = !graph.values[output].folded;
  std::vector<int> nodes;
  for (int n = static_cast<int>(graph.nodes.size()) - 1; n >= 0; --n) {
    const Node& node = graph.nodes[n];
    const bool live =
        std::any_of(node.outputs.begin(), node.outputs.end(),
                    [&](ValueId v) { return v != kNoValue && needed[v]; });
    if (!live) continue;
    nodes.push_back(n);
    for (ValueId v : node.inputs) {
      if (v != kNoValue && !graph.values[v].folded) needed[v] = true;
    }
  }
  std::reverse(nodes.begin(), nodes.end());
  return nodes;
}

}  // namespace

bool BackwardGraph::RunsBackward(size_t position) const {
  const std::vector<bool>& wants = wants_gradient[position];
  return std::find(wants.begin(), wants.end(), true) != wants.end();
}

BackwardGraph BuildBackwardGraph(const Graph& graph, ValueId loss_output,
                                 absl::Span<const ValueId> parameters) {
  BackwardGraph d;
  d.nodes = NodesBefore(graph, loss_output);
  d.wants_gradient.resize(d.nodes.size());

  // Downwards: what changes when a parameter changes.
  std::vector<bool> depends(graph.values.size(), false);
  for (ValueId v : parameters) depends[v] = true;
  for (int n : d.nodes) {
    const Node& node = graph.nodes[n];
    const std::vector<bool> inputs = InputsWithGradient(graph, node);
    bool any = false;
    for (size_t i = 0; i < inputs.size(); ++i) {
      any |= inputs[i] && depends[node.inputs[i]];
    }
    if (!any) continue;
    for (ValueId y : OutputsWithGradient(graph, node)) depends[y] = true;
  }
  d.loss_has_gradient = depends[loss_output];

  // Upwards: of that, what the loss depends on.
  std::vector<bool> reached(graph.values.size(), false);
  reached[loss_output] = d.loss_has_gradient;
  for (size_t p = d.nodes.size(); p-- > 0;) {
    const Node& node = graph.nodes[d.nodes[p]];
    d.wants_gradient[p].assign(node.inputs.size(), false);
    const std::vector<ValueId> outputs = OutputsWithGradient(graph, node);
    const bool has_gradient = std::any_of(
        outputs.begin(), outputs.end(), [&](ValueId y) { return reached[y]; });
    if (!has_gradient) continue;
    const std::vector<bool> inputs = InputsWithGradient(graph, node);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i] || !depends[node.inputs[i]]) continue;
      d.wants_gradient[p][i] = true;
      reached[node.inputs[i]] = true;
    }
  }
  return d;
}

}  // namespace syncline::worker
