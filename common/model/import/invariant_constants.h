#ifndef SYNCLINE_COMMON_MODEL_IMPORT_INVARIANT_CONSTANTS_H_
#define SYNCLINE_COMMON_MODEL_IMPORT_INVARIANT_CONSTANTS_H_

#include "absl/types/span.h"
#include "common/model/graph/fusion.h"
#include "common/model/graph/node.h"
#include "common/model/inference/shape_inference.h"

namespace syncline {

struct Graph;

// The computed values that are the same number for all batch sizes and lengths:
// float32, one element, made of constants and of dimensions that are fixed.
// Followed element by element, because exporters take a head's size from a
// shape that has the batch size in it, too.
//   graph            whole; its computed values have their dims
//   nodes            as for InferValues
//   values           what that says of one batch size and the longest length
//   at_other_length  and of another length; empty: there is one length
InvariantConstants FindInvariantConstants(
    const Graph& graph, absl::Span<const Node> nodes,
    absl::Span<const InferredValue> values,
    absl::Span<const InferredValue> at_other_length);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_IMPORT_INVARIANT_CONSTANTS_H_
