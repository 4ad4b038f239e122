#ifndef SYNCLINE_KERNELS_DEVICE_COMPARISON_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_COMPARISON_KERNELS_H_

#include <array>
#include <cstdint>

#include "kernels/elementwise/by_dtype.h"
#include "kernels/elementwise/comparison_functions.h"
#include "kernels/elementwise/strided.h"

namespace syncline {

class Stream;

// Comparisons and logic of two arrays of one type, element by element: the list
// is SYNCLINE_COMPARISON_FUNCTIONS. The result is dense, 1 or 0 in each byte.
struct ComparisonKernels {
  // The operands lie under the result in strides.
  using Compare = void (*)(Stream& stream, const Strided<2>& walk,
                           const void* a, const void* b, uint8_t* y);
  std::array<ByDType<Compare>, kComparisonFunctions> functions;
  // y = 1 where x is 0, else 0. y may be x.
  void (*logical_not)(Stream& stream, int64_t n, const uint8_t* x,
                      uint8_t* y) = nullptr;

  const ByDType<Compare>& operator[](ComparisonFunction function) const {
    return functions[static_cast<size_t>(function)];
  }
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_COMPARISON_KERNELS_H_
