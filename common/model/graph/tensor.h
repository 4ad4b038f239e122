#ifndef SYNCLINE_COMMON_MODEL_GRAPH_TENSOR_H_
#define SYNCLINE_COMMON_MODEL_GRAPH_TENSOR_H_

// Dimensions and constants: the part of graph.h that most of its
// readers need.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/base/dtype.h"

namespace syncline {

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

// The symbol of the graph inputs' dimension that is the length of a batch's
// samples, and the largest that it is. No symbol: there is no such dimension.
struct LengthDimension {
  std::string symbol;
  int64_t longest = 0;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_GRAPH_TENSOR_H_
