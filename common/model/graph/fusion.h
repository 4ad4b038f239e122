#ifndef SYNCLINE_COMMON_MODEL_GRAPH_FUSION_H_
#define SYNCLINE_COMMON_MODEL_GRAPH_FUSION_H_

#include <map>
#include <optional>

#include "common/model/graph/node.h"

namespace syncline {

struct Graph;

// Computed values that are one float32 number, whatever the batch size.
using InvariantConstants = std::map<ValueId, float>;

// The number that a float32 tensor of one element holds.
std::optional<float> NumberIn(const ConstantTensor& tensor);

// Recognises what exporters write out in several nodes where one operator of
// ours does the same:
//
//   Gelu       the error function's form, which older opsets have no operator
//              for (x / sqrt(2), Erf, + 1, * x, * 0.5, in any order)
//   Attention  Q K^T, scaled before or after, a mask added or filled in,
//              Softmax, and the product with V; the transposes that bring heads
//              to the front and back are part of it
//
// The last of such nodes becomes the operator, under its name (Node::is_fused);
// the others stay without readers. A pattern is left as it is if another node
// reads a value within it, or if a number in it is trained. Types
// and shapes of values do not change. A query all of whose scores are minus
// infinity gets 0, where the nodes give NaN.
void FuseNodes(const InvariantConstants& numbers, Graph* graph);

// Attributes that a fused Attention has besides ONNX's.
//
// Ints, for Q, K, V and Y: 1 if it is [batch, rows, heads, width].
inline constexpr char kRowsFirst[] = "syncline.rows_first";
// Int: elements of a mask of bool are 1 where a score is hidden.
inline constexpr char kMaskHides[] = "syncline.mask_hides";
// Float: what stands for a hidden score. Absent: minus infinity.
inline constexpr char kHiddenScore[] = "syncline.hidden_score";

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_GRAPH_FUSION_H_
