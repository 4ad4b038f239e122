#ifndef SYNCLINE_WORKER_COMPUTE_BACKWARD_GRAPH_H_
#define SYNCLINE_WORKER_COMPUTE_BACKWARD_GRAPH_H_

#include <vector>

#include "absl/types/span.h"
#include "common/model/graph/node.h"

namespace syncline {
struct Graph;
}  // namespace syncline

namespace syncline::worker {

// Which part of a graph a step runs, and where gradients flow. Depends on the
// graph alone, not on the batch size.
struct BackwardGraph {
  // Nodes that the loss's output depends on, in order; the rest, and what is
  // known before training (Value::folded), is never run.
  std::vector<int> nodes;
  // By position in `nodes`, by input: its gradient is needed, because it leads
  // from the loss to a parameter. Data, frozen weights and what depends on
  // nothing else have no gradient.
  std::vector<std::vector<bool>> wants_gradient;
  // The loss's output depends on a parameter at all.
  bool loss_has_gradient = false;

  // True if the node at this position takes part in the backward pass.
  bool RunsBackward(size_t position) const;
};

// `parameters` may be empty: forward only.
BackwardGraph BuildBackwardGraph(const Graph& graph, ValueId loss_output,
                                 absl::Span<const ValueId> parameters);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_BACKWARD_GRAPH_H_
