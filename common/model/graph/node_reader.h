#ifndef SYNCLINE_COMMON_MODEL_GRAPH_NODE_READER_H_
#define SYNCLINE_COMMON_MODEL_GRAPH_NODE_READER_H_

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/graph/node.h"

namespace onnx {
class NodeProto;
class OpSchema;
}  // namespace onnx

namespace syncline {

// ONNX's own domain, which a file may leave empty.
bool IsOnnxDomain(absl::string_view domain);

// Reads what each node of a file says about itself: the operator and its
// attributes, checked against ONNX's schema. Names of values are not looked at.
// Internal to this folder. Used by one thread.
class NodeReader {
 public:
  using DomainAndName = std::pair<std::string, std::string>;

  // `functions` are those that the file defines: the caller reports them, so a
  // call of one is no further problem. `problems` gets one line each, and must
  // outlive the reader.
  NodeReader(int opset_version, std::set<DomainAndName> functions,
             std::vector<std::string>* problems);

  // Fills since_version and attributes of *node, whose op_type is set. `label`
  // names the node in problems. False, with problems, if the node is bad.
  bool Read(const std::string& label, const onnx::NodeProto& file_node,
            Node* node);

  // Adds to the problem of each unsupported operator how many more nodes have
  // it. To be called once, after the last Read.
  void CountUnsupported();

 private:
  // Of an operator that is not supported: its line in *problems_.
  struct Unsupported {
    size_t problem = 0;
    int nodes = 0;
  };

  template <typename... Parts>
  void Problem(const Parts&... parts);

  // A problem for the first node of each operator; the others are counted.
  void ReportUnsupported(const std::string& label, const onnx::NodeProto& node);
  bool AddAttributes(const onnx::NodeProto& file_node, const std::string& label,
                     Node* node);
  // Counts of inputs and outputs, names and types of attributes.
  bool Verify(const onnx::OpSchema& schema, const onnx::NodeProto& file_node,
              const std::string& label);

  const int opset_version_;
  const std::set<DomainAndName> functions_;
  std::vector<std::string>* const problems_;
  std::map<DomainAndName, Unsupported> unsupported_;
};

// The tensor that a Constant node stands for. Errors: InvalidArgument: it has
// no value, several, or one of a type that is not supported.
absl::StatusOr<ConstantTensor> ConstantValue(const Node& node);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_GRAPH_NODE_READER_H_
