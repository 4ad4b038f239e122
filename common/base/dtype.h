#ifndef SYNCLINE_COMMON_BASE_DTYPE_H_
#define SYNCLINE_COMMON_BASE_DTYPE_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace syncline {

// The type of a tensor's elements. A bool is one byte, 0 or 1. The 16-bit types
// are a plan's alone (worker/compute/dtype_overlay.h): no model has values of
// them.
enum class DType {
  kFloat32,
  kFloat64,
  kInt32,
  kInt64,
  kBool,
  kUint8,
  kBfloat16,
  kFloat16,
};

// Bytes per element: 4, 8, 4, 8, 1, 1, 2, 2.
size_t DTypeBytes(DType dtype);
// kBfloat16 and kFloat16.
inline bool Is16Bit(DType dtype) {
  return dtype == DType::kBfloat16 || dtype == DType::kFloat16;
}
absl::string_view DTypeName(DType dtype);  // "float32"

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_DTYPE_H_
