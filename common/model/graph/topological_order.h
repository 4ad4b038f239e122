#ifndef SYNCLINE_COMMON_MODEL_GRAPH_TOPOLOGICAL_ORDER_H_
#define SYNCLINE_COMMON_MODEL_GRAPH_TOPOLOGICAL_ORDER_H_

#include <vector>

#include "absl/types/span.h"

namespace syncline {

struct TopologicalOrder {
  // Every node after its predecessors, else in ascending order: an input that
  // is in order already stays as it is. Incomplete if there is a cycle.
  std::vector<int> order;
  // Nodes of one cycle, each a predecessor of the next, the last one of the
  // first. Empty if there is none.
  std::vector<int> cycle;
};

// `predecessors`[i] are the nodes that node i needs; repeats are allowed.
TopologicalOrder SortTopologically(
    absl::Span<const std::vector<int>> predecessors);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_GRAPH_TOPOLOGICAL_ORDER_H_
