#ifndef SYNCLINE_COMMON_MODEL_GRAPH_DESCRIBE_H_
#define SYNCLINE_COMMON_MODEL_GRAPH_DESCRIBE_H_

// How errors name the parts of a model. Names come from hostile files, so they
// are escaped and shortened.

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model/graph/node.h"

namespace syncline {

struct Graph;

std::string Quote(absl::string_view name);  // 'fc1/weight'

// node 'fc1' (Gemm, opset 13)
std::string DescribeNode(absl::string_view name, absl::string_view op_type,
                         int opset_version);

// The names of values, the first of many: ('a', 'b', ...); of no value: (none).
std::string DescribeNames(const Graph& graph, absl::Span<const ValueId> values);

// float32[N,784]
std::string DescribeTensor(DType dtype, absl::Span<const int64_t> dims);

// True if `name` matches `pattern`, in which "*" stands for any text and "?"
// for any one character.
bool MatchesPattern(absl::string_view pattern, absl::string_view name);

// The most dimensions and elements that a tensor of a model may have.
inline constexpr int kRankMax = 8;
inline constexpr int64_t kElementsMax = int64_t{1} << 46;

// True if a tensor of these dims is within these limits; no product overflows
// then, even where a dimension is 0. kBatchDim counts as 1.
bool WithinLimits(absl::Span<const int64_t> dims);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_GRAPH_DESCRIBE_H_
