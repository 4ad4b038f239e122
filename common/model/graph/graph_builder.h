#ifndef SYNCLINE_COMMON_MODEL_GRAPH_GRAPH_BUILDER_H_
#define SYNCLINE_COMMON_MODEL_GRAPH_GRAPH_BUILDER_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/model/graph/graph.h"

namespace onnx {
class ModelProto;
}  // namespace onnx

namespace syncline {

struct BuiltGraph {
  Graph graph;
  // By Graph::nodes index: the node's index in the file; kBadNode if something
  // is wrong with it, so that nothing can be said about its outputs.
  static constexpr int kBadNode = -1;
  std::vector<int> file_nodes;
};

// Resolves the names of `model` and checks everything that needs no shapes:
// versions, operators, attributes, initializers, undefined and doubly defined
// names, cycles. Shapes and types of computed values are left open. Moves the
// content of initializers out of `model`.
//   initialize  patterns of declared parameters, see model.h
//   tables      names of embedding tables, see model.h
//   length      the dimension that may be open besides the batch, see model.h
// Appends one line per problem. A node or value with a problem stays in the
// graph, so that its users are not reported too. The nodes of a cycle, and the
// nodes after them, are left out. Without a valid opset the graph is empty.
BuiltGraph BuildGraph(absl::Span<const std::string> initialize,
                      onnx::ModelProto* model,
                      std::vector<std::string>* problems,
                      absl::Span<const std::string> tables = {},
                      const LengthDimension& length = {});

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_GRAPH_GRAPH_BUILDER_H_
