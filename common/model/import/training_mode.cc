#include "common/model/import/training_mode.h"

#include "absl/algorithm/container.h"
#include "common/model/graph/graph.h"

namespace syncline {
namespace {

constexpr size_t kDropoutMode = 2;  // input of Dropout
constexpr size_t kRunningMean = 3;  // inputs of BatchNormalization
constexpr size_t kStatisticsEnd = 5;

bool IsTraining(const Graph& graph, const Node& node) {
  if (node.op_type == "BatchNormalization") {
    // Before opset 14 its outputs say it: in training mode it gives the running
    // statistics, too.
    return node.since_version < 14
               ? node.outputs.size() > 1 && node.outputs[1] != kNoValue
               : node.Int("training_mode", 0) != 0;
  }
  if (node.op_type != "Dropout" || node.inputs.size() <= kDropoutMode) {
    return false;
  }
  const ValueId mode = node.inputs[kDropoutMode];
  if (mode == kNoValue || graph.values[mode].initializer < 0) return false;
  const std::string& bytes =
      graph.initializers[graph.values[mode].initializer].tensor.bytes;
  return !bytes.empty() && bytes[0] != 0;
}

}  // namespace

bool HasTrainingMode(const Graph& graph) {
  return absl::c_any_of(
      graph.nodes, [&](const Node& node) { return IsTraining(graph, node); });
}

std::vector<bool> KeptStatistics(const Graph& graph) {
  std::vector<bool> kept(graph.values.size(), false);
  if (!HasTrainingMode(graph)) return kept;
  std::vector<bool> moves(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    if (node.op_type != "BatchNormalization") continue;
    const bool trains = IsTraining(graph, node);
    for (size_t i = kRunningMean; i < kStatisticsEnd && i < node.inputs.size();
         ++i) {
      if (node.inputs[i] == kNoValue) continue;
      (trains ? moves : kept)[node.inputs[i]] = true;
    }
  }
  for (size_t v = 0; v < kept.size(); ++v) kept[v] = kept[v] && !moves[v];
  return kept;
}

}  // namespace syncline
