#ifndef SYNCLINE_COMMON_MODEL_ZOO_GRAPH_WRITER_H_
#define SYNCLINE_COMMON_MODEL_ZOO_GRAPH_WRITER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/graph/node.h"
#include "common/model/graph/tensor.h"

namespace onnx {
class ModelProto;
}  // namespace onnx

namespace syncline {

// Writes an ONNX graph node by node. Each call returns the name of the value
// that it defines. The values of a weight are drawn from the seed and its own
// name, so that one weight does not depend on the others. They are drawn
// when all of them are known to fit into a file. Thread-compatible.
class GraphWriter {
 public:
  // In the dims of an input or output: the dimension "sequence", which is open.
  static constexpr int64_t kSequence = -1;

  GraphWriter(absl::string_view graph, int opset, uint64_t seed);
  ~GraphWriter();

  // Graph input and output, [N, dims...]: the batch dimension is open.
  std::string Input(absl::string_view name, const Dims& dims,
                    DType dtype = DType::kFloat32);
  void Output(absl::string_view name, const Dims& dims);
  // Graph input float32 [rows, dim], the number of rows open: a table that the
  // job declares.
  std::string OpenTable(absl::string_view name, int64_t dim);

  // float32 initializers: one value; in parts of equal size, one value each;
  // normal with this deviation; normal with deviation sqrt(2 / fan_in) (He et
  // al., ICCV 2015).
  std::string Filled(absl::string_view name, const Dims& dims, float value);
  std::string FilledInParts(absl::string_view name, const Dims& dims,
                            std::vector<float> values);
  std::string Normal(absl::string_view name, const Dims& dims, float deviation);
  std::string He(absl::string_view name, const Dims& dims, int64_t fan_in);
  std::string Integers(absl::string_view name,
                       const std::vector<int64_t>& values);
  // One float32, a constant: never trained.
  std::string Scalar(absl::string_view name, float value);

  // A node called `name` with one output, which is called like the node.
  std::string Node(absl::string_view name, absl::string_view op_type,
                   const std::vector<std::string>& inputs,
                   const std::map<std::string, Attribute>& attributes = {});
  // The same with these outputs.
  void Node(absl::string_view name, absl::string_view op_type,
            const std::vector<std::string>& inputs,
            const std::vector<std::string>& outputs,
            const std::map<std::string, Attribute>& attributes);

  // The file, binary. Call it once, last. Errors: OutOfRange: the weights are
  // more than an ONNX file holds.
  absl::StatusOr<std::string> Serialize();

 private:
  // Of the file, before it is written: protobuf's limit, with room for the
  // nodes.
  static constexpr int64_t kWeightBytesMax = (int64_t{2} << 30) - (32 << 20);

  struct Weight {
    int initializer;  // of the graph, still without values
    Dims dims;
    std::vector<float> means;  // of parts of equal size
    float deviation;           // 0: all are the mean
  };

  std::string Add(absl::string_view name, Weight weight);
  absl::Status CheckSize() const;
  void Fill(const Weight& weight);
  const uint64_t seed_;
  std::vector<Weight> weights_;
  std::unique_ptr<onnx::ModelProto> model_;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_ZOO_GRAPH_WRITER_H_
