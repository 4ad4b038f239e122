#ifndef SYNCLINE_COMMON_MODEL_GRAPH_GRAPH_H_
#define SYNCLINE_COMMON_MODEL_GRAPH_GRAPH_H_

// The one graph representation: an ONNX graph after parsing, checking and name
// resolution, in plain structures, so that what executes it needs no ONNX
// header. Values are numbered; nodes refer to values by number. A source that
// needs no values and no whole graph includes node.h or tensor.h alone.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/model/graph/node.h"
#include "common/model/graph/tensor.h"

namespace syncline {

struct Value {
  enum class Kind { kInput, kInitializer, kComputed };
  std::string name;
  Kind kind = Kind::kComputed;
  // False only in a model that is not whole (model.h): type and shape cannot be
  // told.
  bool known = true;
  DType dtype = DType::kFloat32;
  Dims dims;  // kBatchDim and kDerivedDim possible; initializers are concrete
  // Of a graph input, bit d: dimension d is the length of a batch's samples,
  // `dims` has the longest.
  uint32_t length_mask = 0;
  int32_t producer = -1;     // node index; -1 for inputs and initializers
  int32_t initializer = -1;  // index into Graph::initializers
  // Computed, but from constants and shapes alone: known before training, for
  // each batch size (Model::Infer), so that nothing need compute it.
  bool folded = false;
};

struct Initializer {
  enum class Origin {
    kFile,      // an initializer of the file, with its values
    kDeclared,  // a graph input that a rule of the job fills, see model.h:
                // tensor.bytes is empty
    kConstant,  // the output of a Constant node, which is not in Graph::nodes
  };
  ValueId value = kNoValue;
  ConstantTensor tensor;
  Origin origin = Origin::kFile;
};

// Nodes are in topological order. Immutable once built, hence thread-safe.
struct Graph {
  std::string name;
  int opset_version = 0;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<Initializer> initializers;
  std::vector<ValueId> inputs;  // without those that have an initializer
  std::vector<ValueId> outputs;

  // kNoValue if there is none.
  ValueId FindValue(absl::string_view name) const;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_GRAPH_GRAPH_H_
