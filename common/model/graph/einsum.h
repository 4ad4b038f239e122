#ifndef SYNCLINE_COMMON_MODEL_GRAPH_EINSUM_H_
#define SYNCLINE_COMMON_MODEL_GRAPH_EINSUM_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model/graph/tensor.h"

namespace syncline {

// An Einsum equation over operands of known shapes: one label per dimension.
// The dimensions that an ellipsis stands for have labels of their own. Labels
// that are not in the output are summed over.
struct EinsumLabels {
  std::vector<std::string> inputs;  // by operand, one character per dimension
  std::string output;
  std::map<char, int64_t> sizes;  // of every label

  Dims DimsOf(const std::string& labels) const;
};

// Without "->" the output has, after the ellipsis, the labels that occur once,
// in alphabetical order. Errors: InvalidArgument: what is malformed, does not
// fit the operands, or has two sizes.
absl::StatusOr<EinsumLabels> ParseEinsum(absl::string_view equation,
                                         absl::Span<const Dims> operands);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_GRAPH_EINSUM_H_
