#ifndef SYNCLINE_WORKER_COMPUTE_OPERATOR_FUSION_H_
#define SYNCLINE_WORKER_COMPUTE_OPERATOR_FUSION_H_

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "common/model/graph/graph.h"
#include "common/model/graph/tensor.h"
#include "worker/compute/backward_graph.h"

namespace syncline::worker {

// A plan's graph in which some nodes stand for several (worker/ops/fused), for
// devices that compute these together:
//
//   MatMul or Gemm, Add of a bias, Relu or Gelu with the tanh
//   Add of two arrays, LayerNormalization or RMSNormalization
//
// The nodes of a chain are one at the place of the last one, under the name of
// the first. Nothing else reads what is between them, but for these, which are
// outputs of the one node: the sum that is normalised, and the argument of a
// function, or for Relu a bit for each, that its gradient is found from.
//
// A function is in a training plan's chain only if one product alone reads its
// result: the gradient that the product writes is then that of the function's
// argument, and no step computes it. Elsewhere it stays a node.
struct FusedGraph {
  // Values and nodes of the plan's graph, under their numbers; then values that
  // are kept. Without the initializers: those are the model's. Nodes that are
  // part of others are not in the flow.
  Graph graph;
  BackwardGraph flow;
  std::vector<ValueId> sources;  // as DTypeOverlay's
  std::vector<Dims> shapes;      // by ValueId
  // By position: the positions in the plan's flow of what the node stands for;
  // of the others, their own.
  std::vector<std::vector<int>> parts;
};

// The input of FuseOperators.
struct FusionSpec {
  const Graph* graph = nullptr;
  const BackwardGraph* flow = nullptr;
  absl::Span<const ValueId> sources = {};  // empty: each is its own
  absl::Span<const Dims> shapes;           // by ValueId
  ValueId loss_output = kNoValue;
};

// Whether the device computes a node that stands for several, with these
// gradients wanted: `so_far` has its values.
using CanCompute =
    absl::FunctionRef<bool(const FusedGraph& so_far, const Node& node,
                           const std::vector<bool>& wants)>;

// Fuses what `can_compute` takes. It is asked about each node as it would be,
// and then about less of the chain. A pure function but for that.
FusedGraph FuseOperators(const FusionSpec& spec, CanCompute can_compute);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_OPERATOR_FUSION_H_
