#ifndef SYNCLINE_COMMON_MODEL_INFERENCE_ATTRIBUTE_RANGES_H_
#define SYNCLINE_COMMON_MODEL_INFERENCE_ATTRIBUTE_RANGES_H_

#include "absl/status/status.h"
#include "common/model/graph/node.h"

namespace syncline {

// Checks the attributes of a node that libonnx computes with before it looks at
// them: it divides by strides, whatever they are. Errors: InvalidArgument: the
// attribute, its value and what it must be.
absl::Status CheckAttributeRanges(const Node& node);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_INFERENCE_ATTRIBUTE_RANGES_H_
