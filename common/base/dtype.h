#ifndef SYNCLINE_COMMON_BASE_DTYPE_H_
#define SYNCLINE_COMMON_BASE_DTYPE_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace syncline {

// The type of a tensor's elements. A bool is one byte, 0 or 1.
enum class DType { kFloat32, kFloat64, kInt32, kInt64, kBool, kUint8 };

// Bytes per element: 4, 8, 4, 8, 1, 1.
size_t DTypeBytes(DType dtype);
absl::string_view DTypeName(DType dtype);  // "float32"

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_DTYPE_H_
