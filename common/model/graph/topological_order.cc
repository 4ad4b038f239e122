#include "common/model/graph/topological_order.h"

#include <algorithm>
#include <functional>
#include <queue>

namespace syncline {
namespace {

// Every node with missing[i] > 0 waits for another such node, so walking from
// one to the next must come back to where it has been.
std::vector<int> FindCycle(absl::Span<const std::vector<int>> predecessors,
                           absl::Span<const int> missing) {
  const auto stuck =
      std::find_if(missing.begin(), missing.end(), [](int m) { return m > 0; });
  std::vector<int> walk;
  std::vector<int> position(missing.size(), -1);
  int node = static_cast<int>(stuck - missing.begin());
  while (position[node] < 0) {
    position[node] = static_cast<int>(walk.size());
    walk.push_back(node);
    node = *std::find_if(predecessors[node].begin(), predecessors[node].end(),
                         [&](int p) { return missing[p] > 0; });
  }
  walk.erase(walk.begin(), walk.begin() + position[node]);
  std::reverse(walk.begin(), walk.end());  // it went from user to producer
  std::rotate(walk.begin(), std::min_element(walk.begin(), walk.end()),
              walk.end());
  return walk;
}

}  // namespace

TopologicalOrder SortTopologically(
    absl::Span<const std::vector<int>> predecessors) {
  const int count = static_cast<int>(predecessors.size());
  std::vector<std::vector<int>> users(count);
  std::vector<int> missing(count, 0);
  for (int node = 0; node < count; ++node) {
    missing[node] = static_cast<int>(predecessors[node].size());
    for (int p : predecessors[node]) users[p].push_back(node);
  }
  std::priority_queue<int, std::vector<int>, std::greater<int>> ready;
  for (int node = 0; node < count; ++node) {
    if (missing[node] == 0) ready.push(node);
  }
  TopologicalOrder result;
  while (!ready.empty()) {
    const int node = ready.top();
    ready.pop();
    result.order.push_back(node);
    for (int user : users[node]) {
      if (--missing[user] == 0) ready.push(user);
    }
  }
  if (static_cast<int>(result.order.size()) < count) {
    result.cycle = FindCycle(predecessors, missing);
  }
  return result;
}

}  // namespace syncline
