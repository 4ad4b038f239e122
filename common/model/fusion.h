#ifndef SYNCLINE_COMMON_MODEL_FUSION_H_
#define SYNCLINE_COMMON_MODEL_FUSION_H_

#include <vector>

#include "common/model/graph.h"

namespace syncline {

// Recognises what exporters write out in several nodes where one operator of
// ours does the same: the error function's form of GELU, which older opsets
// have no operator for (x / sqrt(2), Erf, + 1, * x, * 0.5, in any order).
//
// The last of such nodes becomes the operator, under its name; the others stay,
// with nobody to read them. Patterns are left alone if anything else reads what
// is between, or if a number in them is trained. Returns the indices of the
// nodes that changed; their only output has type and shape of their only input.
std::vector<int> FuseNodes(Graph* graph);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_FUSION_H_
