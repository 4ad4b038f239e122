#ifndef SYNCLINE_COMMON_MODEL_GRAPH_GRAPH_H_
#define SYNCLINE_COMMON_MODEL_GRAPH_GRAPH_H_

// The one graph representation: an ONNX graph after parsing, checking and name
// resolution, in plain structures, so that what executes it needs no ONNX
// header. Values are numbered; nodes refer to values by number.

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace syncline {

enum class DType { kFloat32, kFloat64, kInt32, kInt64, kBool, kUint8 };

// Bytes per element: 4, 8, 4, 8, 1, 1.
size_t DTypeBytes(DType dtype);
absl::string_view DTypeName(DType dtype);  // "float32"

using Dims = std::vector<int64_t>;
// Product; 1 for a scalar.
int64_t ElementCount(absl::Span<const int64_t> dims);
std::string DimsToString(absl::Span<const int64_t> dims);  // "[2,3]", "[N,3]"

// In Value::dims: the batch size, which is not known yet.
inline constexpr int64_t kBatchDim = -1;
// In Value::dims: depends on the batch size, but is not it (a multiple of it,
// say). Model::InferShapes knows it.
inline constexpr int64_t kDerivedDim = -2;

// A constant with its bytes, little-endian, row-major.
struct ConstantTensor {
  DType dtype = DType::kFloat32;
  Dims dims;
  std::string bytes;
  // REQUIRES: the dtype matches.
  absl::Span<const float> floats() const;
  absl::Span<const int64_t> ints() const;
};

using Attribute =
    std::variant<int64_t, float, std::string, std::vector<int64_t>,
                 std::vector<float>, std::vector<std::string>, ConstantTensor>;

// The symbol of the graph inputs' dimension that is the length of a batch's
// samples, and the largest that it is. No symbol: there is no such dimension.
struct LengthDimension {
  std::string symbol;
  int64_t longest = 0;
};

using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;  // an omitted optional input or output

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

struct Node {
  std::string name;       // never empty: "op_type#index" if the file has none
  std::string op_type;    // "Gemm"
  std::string domain;     // "" is ONNX's own
  int since_version = 0;  // the schema version the opset selects
  std::vector<ValueId> inputs;   // kNoValue where omitted
  std::vector<ValueId> outputs;  // kNoValue where omitted
  std::map<std::string, Attribute> attributes;
  bool is_fused = false;  // stands for several of the file's (fusion.h)

  // Attribute access with the operator's default.
  int64_t Int(absl::string_view name, int64_t fallback) const;
  float Float(absl::string_view name, float fallback) const;
  std::string String(absl::string_view name, absl::string_view fallback) const;
  std::vector<int64_t> Ints(absl::string_view name) const;
  bool Has(absl::string_view name) const;
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
