#include "common/model/graph/tensor.h"

#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"

namespace syncline {

size_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
    case DType::kBool:
    case DType::kUint8:
      return 1;
  }
  return 0;
}

absl::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kBool:
      return "bool";
    case DType::kUint8:
      return "uint8";
  }
  return "?";
}

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
