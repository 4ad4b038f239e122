#ifndef SYNCLINE_COMMON_MODEL_GRAPH_SCHEMAS_H_
#define SYNCLINE_COMMON_MODEL_GRAPH_SCHEMAS_H_

// The operators this build knows, and ONNX's schema for each at any supported
// opset. Internal to this folder; operator_list.h has
// the public part.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace onnx {
class OpSchema;
}  // namespace onnx

namespace syncline {

inline constexpr int kOpsetMin = 11;
inline constexpr int kOpsetMax = 25;
// ONNX's file format versions: from 3 (opset imports) to that of opset 25.
inline constexpr int kIrVersionMin = 3;
inline constexpr int kIrVersionMax = 13;

struct OperatorInfo {
  absl::string_view op_type;
  // See operator_list.h. An initializer used only as an input that has no
  // gradient is not a parameter.
  uint32_t gradient_inputs;
  uint32_t gradient_outputs;
  // Ascending, 0 after the last.
  std::array<int, 10> versions;
};

// True if the import replaces a file's node of this type, so that no executor
// sees it: a Constant by an initializer, a CastLike by a Cast.
bool IsResolvedAtImport(absl::string_view op_type);

// Null if the operator is not supported. Those resolved at import are included.
const OperatorInfo* FindOperator(absl::string_view op_type);

// Names of operators that a file may use which `name` may be a slip for, the
// likeliest first; at most 3.
std::vector<std::string> OperatorsLike(absl::string_view name);

// The schema version that `opset_version` selects.
// REQUIRES: kOpsetMin <= opset_version.
int SinceVersion(const OperatorInfo& op, int opset_version);

// ONNX's schema of a supported operator; null if ONNX has none at this opset.
const onnx::OpSchema* FindSchema(const OperatorInfo& op, int opset_version);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_GRAPH_SCHEMAS_H_
