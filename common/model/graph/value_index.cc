#include "common/model/graph/value_index.h"

#include <cstddef>

#include "common/model/graph/graph.h"

namespace syncline {

ValueIndex::ValueIndex(const Graph& graph) {
  ids_.reserve(graph.values.size());
  for (size_t v = 0; v < graph.values.size(); ++v) {
    ids_.emplace(graph.values[v].name, static_cast<ValueId>(v));
  }
}

ValueId ValueIndex::Find(absl::string_view name) const {
  const auto id = ids_.find(name);
  return id == ids_.end() ? kNoValue : id->second;
}

}  // namespace syncline
