#ifndef SYNCLINE_KERNELS_DEVICE_GENERATOR_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_GENERATOR_KERNELS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/base/dtype.h"

namespace syncline {

class Stream;

// An element of 1, 4 or 8 bytes.
struct AnyElement {
  size_t bytes = 4;
  std::array<char, 8> value = {};  // its first `bytes` ones
};

// Result [outer, depth, inner]; indices [outer, inner].
struct OneHotShape {
  int64_t outer = 1;
  int64_t depth = 1;
  int64_t inner = 1;
  DType index_type = DType::kInt64;
  size_t element_bytes = 4;  // of the result: 1, 4 or 8
};

// Arrays of few numbers.
struct GeneratorKernels {
  // y = the element, `count` times.
  void (*fill)(Stream& stream, const AnyElement& element, int64_t count,
               void* y) = nullptr;
  // y[o, k, i] = values[1] where k is indices[o, i], from the end where
  // negative, else values[0]. An index that is out of range is nowhere.
  void (*one_hot)(Stream& stream, const OneHotShape& s, const void* indices,
                  const void* values, void* y) = nullptr;
  // y[i] = start[0] + i * delta[0], of float32, int32 or int64.
  void (*range)(Stream& stream, DType dtype, int64_t count, const void* start,
                const void* delta, void* y) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_GENERATOR_KERNELS_H_
