#ifndef SYNCLINE_COMMON_MODEL_GRAPH_GRADIENT_FLOW_H_
#define SYNCLINE_COMMON_MODEL_GRAPH_GRADIENT_FLOW_H_

// The one rule for where gradients flow: the choice of a job's parameters and
// what a worker runs backward both follow it. Through values that are not
// float32 no gradient flows.

#include <vector>

#include "absl/types/span.h"
#include "common/model/graph/node.h"

namespace syncline {

struct Graph;

// An attribute that Identity has besides ONNX's, int 1: the program had
// detach() here, through which no gradient flows.
inline constexpr char kDetached[] = "syncline.detached";

// By input of `node`: it has a gradient where the node's result has one.
std::vector<bool> InputsWithGradient(const Graph& graph, const Node& node);

// The outputs that a gradient flows from.
std::vector<ValueId> OutputsWithGradient(const Graph& graph, const Node& node);

// By ValueId: whether a gradient of `output` reaches the value. `output` may be
// kNoValue, whose gradient reaches nothing.
std::vector<bool> ReachedByGradient(const Graph& graph, ValueId output);

// By ValueId: `output` depends on it, by numbers and not by steps. A value
// behind detach() influences it, too. `output` may be kNoValue.
std::vector<bool> Influences(const Graph& graph, ValueId output);

// A place where a parameter influences the output, but gets no gradient. The
// rest of its gradient would then be wrong, without any message.
struct LostGradient {
  ValueId parameter = kNoValue;  // one of those
  int node = 0;                  // index into Graph::nodes
  ValueId value = kNoValue;      // the node's input or output where it ends
  bool is_output = false;
};

// One for each node that is the first to lose one, in the graph's order. Steps
// (Floor, Round, comparisons, integers), whose derivative is 0, lose nothing.
//   is_parameter  by ValueId
std::vector<LostGradient> FindLostGradients(
    const Graph& graph, ValueId output, const std::vector<bool>& is_parameter);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_GRAPH_GRADIENT_FLOW_H_
