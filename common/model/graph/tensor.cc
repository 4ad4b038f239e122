#include "common/model/graph/tensor.h"

#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"

namespace syncline {

int64_t ElementCount(absl::Span<const int64_t> dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1},
                         std::multiplies<int64_t>());
}

std::string DimsToString(absl::Span<const int64_t> dims) {
  const auto append = [](std::string* out, int64_t dim) {
    if (dim == kBatchDim) {
      absl::StrAppend(out, "N");
    } else if (dim == kDerivedDim) {
      absl::StrAppend(out, "?");
    } else {
      absl::StrAppend(out, dim);
    }
  };
  return absl::StrCat("[", absl::StrJoin(dims, ",", append), "]");
}

absl::Span<const float> ConstantTensor::floats() const {
  SYNCLINE_CHECK(dtype == DType::kFloat32);
  return {reinterpret_cast<const float*>(bytes.data()),
          bytes.size() / sizeof(float)};
}

absl::Span<const int64_t> ConstantTensor::ints() const {
  SYNCLINE_CHECK(dtype == DType::kInt64);
  return {reinterpret_cast<const int64_t*>(bytes.data()),
          bytes.size() / sizeof(int64_t)};
}

}  // namespace syncline
