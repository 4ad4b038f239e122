#ifndef SYNCLINE_COMMON_MODEL_INFERENCE_CONSTANT_FOLDING_H_
#define SYNCLINE_COMMON_MODEL_INFERENCE_CONSTANT_FOLDING_H_

#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/graph/node.h"
#include "common/model/graph/tensor.h"

namespace syncline {

// The facts about a node's input that are known before training.
struct FoldInput {
  bool present = false;
  Dims dims;
  const ConstantTensor* value = nullptr;  // null: not known
};

// Results are at most this large: masks, not weights.
inline constexpr int64_t kFoldedElementsMax = 1 << 20;

// Computes a node whose result does not depend on data or weights: what
// exporters write to compute shapes, positions and masks. Integers exactly,
// wrapping around; floating point in double, rounded once.
//   dtype, dims  of its one output
// Empty if a value it needs is not known, the result is too large, or the
// operator is not one of those that such graphs are made of. Errors:
// InvalidArgument: a division by zero, an integer to a negative power, an index
// out of range.
absl::StatusOr<std::optional<ConstantTensor>> FoldNode(
    const Node& node, absl::Span<const FoldInput> inputs, DType dtype,
    const Dims& dims);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_INFERENCE_CONSTANT_FOLDING_H_
