#ifndef SYNCLINE_COMMON_MODEL_GRAPH_VALUE_INDEX_H_
#define SYNCLINE_COMMON_MODEL_GRAPH_VALUE_INDEX_H_

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "common/model/graph/node.h"

namespace syncline {

struct Graph;

// The values of one graph by name, for callers that look for many of them: each
// search in Graph::FindValue reads them all. The graph outlives this and does
// not change. Thread-compatible.
class ValueIndex {
 public:
  explicit ValueIndex(const Graph& graph);

  // kNoValue if there is none; of several of one name the first.
  ValueId Find(absl::string_view name) const;

 private:
  absl::flat_hash_map<absl::string_view, ValueId> ids_;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_GRAPH_VALUE_INDEX_H_
