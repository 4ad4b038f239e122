#ifndef SYNCLINE_COMMON_MODEL_GRAPH_SCHEMA_OVERRIDES_H_
#define SYNCLINE_COMMON_MODEL_GRAPH_SCHEMA_OVERRIDES_H_

// ONNX's schemas of operators that libonnx 1.12 does not know, or knows in an
// older form only. They are not registered: its registry refuses opsets above
// 17, and a later lookup crashes. Internal to this folder.

#include "absl/strings/string_view.h"

namespace onnx {
class OpSchema;
}  // namespace onnx

namespace syncline {

// The schema of this version of the operator (Node::since_version), or that of
// an older one from which it differs in types only; null if libonnx has it.
const onnx::OpSchema* FindSchemaOverride(absl::string_view op_type,
                                         int since_version);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_GRAPH_SCHEMA_OVERRIDES_H_
