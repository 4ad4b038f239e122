#ifndef SYNCLINE_COMMON_MODEL_GRAPH_GRAPH_INPUT_READER_H_
#define SYNCLINE_COMMON_MODEL_GRAPH_GRAPH_INPUT_READER_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/model/graph/graph.h"

namespace onnx {
class GraphProto;
class TensorShapeProto_Dimension;
class ValueInfoProto;
}  // namespace onnx

namespace syncline {

struct GraphInput {
  Value value;
  // An initializer without values: an embedding table, or a weight that a rule
  // of the job fills. False: data that each batch feeds.
  bool is_declared = false;
};

// Reads the graph inputs of a file: their types, and which of their dimensions
// are the batch, the length of samples or a table's number of rows. Internal to
// this folder. Used by one thread.
class GraphInputReader {
 public:
  // initialize, tables and length as for BuildGraph. `graph` is the file's.
  // All must outlive the reader.
  GraphInputReader(absl::Span<const std::string> initialize,
                   absl::Span<const std::string> tables,
                   const LengthDimension& length, const onnx::GraphProto& graph,
                   std::vector<std::string>* problems);

  // Appends a problem if the input cannot be read; its value is then there with
  // known = false.
  GraphInput Read(const onnx::ValueInfoProto& input);

 private:
  template <typename... Parts>
  void Problem(const Parts&... parts);

  // Sets dims and length_mask.
  bool ReadDims(const onnx::ValueInfoProto& input, Value* value);
  bool IsLength(const onnx::TensorShapeProto_Dimension& dim) const;
  bool IsTable(const Value& value) const;
  bool IsFilledByRule(const Value& value) const;

  const absl::Span<const std::string> initialize_;
  const absl::Span<const std::string> tables_;
  const LengthDimension& length_;
  std::vector<std::string>* const problems_;
  std::string batch_symbol_;  // "": the file has no name for the batch
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_GRAPH_GRAPH_INPUT_READER_H_
