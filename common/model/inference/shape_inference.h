#ifndef SYNCLINE_COMMON_MODEL_INFERENCE_SHAPE_INFERENCE_H_
#define SYNCLINE_COMMON_MODEL_INFERENCE_SHAPE_INFERENCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/model/graph/node.h"
#include "common/model/graph/tensor.h"

namespace onnx {
class GraphProto;
}  // namespace onnx

namespace syncline {

struct Graph;

// Inputs that inference rules read by value are shapes, axes and flags; of a
// larger one they see type and shape alone.
inline constexpr int64_t kReadableElementsMax = 64;

// All values that are computed before training together; a small file can ask
// for any number of large ones.
inline constexpr int64_t kFoldedBytesMax = int64_t{512} << 20;

struct InferredValue {
  bool known = false;
  DType dtype = DType::kFloat32;
  Dims dims;  // concrete
  // Of a computed value that depends on constants and shapes alone, what it is;
  // else null.
  std::shared_ptr<const ConstantTensor> constant = nullptr;
};

// How the batch size appears in the messages: as the number it is, or as "N"
// where it stands for any.
enum class BatchStyle { kNumber, kSymbol };

// Type and shape of every value with kBatchDim of the inputs replaced by
// `batch_size`, and their length by `length` (0: the longest), by libonnx's
// rules and ours; and the values that follow from constants and shapes.
//   nodes       the graph's, before any of them were fused (fusion.h)
//   file        the graph's origin, see BuiltGraph
//   file_nodes  likewise; the outputs of bad nodes are not known
// Appends one line per problem, each naming the node and the shapes of its
// inputs; what depends on a value that is not known is left unknown without a
// problem of its own.
std::vector<InferredValue> InferValues(const Graph& graph,
                                       absl::Span<const Node> nodes,
                                       const onnx::GraphProto& file,
                                       absl::Span<const int> file_nodes,
                                       int64_t batch_size, BatchStyle style,
                                       std::vector<std::string>* problems,
                                       int64_t length = 0);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_INFERENCE_SHAPE_INFERENCE_H_
