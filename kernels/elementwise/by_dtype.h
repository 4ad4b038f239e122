#ifndef SYNCLINE_KERNELS_ELEMENTWISE_BY_DTYPE_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_BY_DTYPE_H_

#include "common/base/dtype.h"

namespace syncline {

// One kernel for each type of elements; null for a type without one.
template <typename T>
struct ByDType {
  T float32 = {};
  T float64 = {};
  T int32 = {};
  T int64 = {};
  T boolean = {};
  T uint8 = {};
  T bfloat16 = {};
  T float16 = {};

  constexpr const T& operator[](DType dtype) const {
    switch (dtype) {
      case DType::kFloat32:
        return float32;
      case DType::kFloat64:
        return float64;
      case DType::kInt32:
        return int32;
      case DType::kInt64:
        return int64;
      case DType::kBool:
        return boolean;
      case DType::kBfloat16:
        return bfloat16;
      case DType::kFloat16:
        return float16;
      case DType::kUint8:
        break;
    }
    return uint8;
  }
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_BY_DTYPE_H_
