#ifndef SYNCLINE_KERNELS_ELEMENTWISE_COMPARISON_FUNCTIONS_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_COMPARISON_FUNCTIONS_H_

// Comparisons and logic of two elements of one type: one list, from which the
// compiler of each device makes its kernels. NaN equals and orders nothing.

#include <cstddef>

#include "kernels/elementwise/host_device.h"

namespace syncline {
namespace comparison {

struct And {
  template <typename T>
  SYNCLINE_HOST_DEVICE static bool Value(T a, T b) {
    return a != 0 && b != 0;
  }
};

struct Equal {
  template <typename T>
  SYNCLINE_HOST_DEVICE static bool Value(T a, T b) {
    return a == b;
  }
};

struct Less {
  template <typename T>
  SYNCLINE_HOST_DEVICE static bool Value(T a, T b) {
    return a < b;
  }
};

struct LessOrEqual {
  template <typename T>
  SYNCLINE_HOST_DEVICE static bool Value(T a, T b) {
    return a <= b;
  }
};

struct Or {
  template <typename T>
  SYNCLINE_HOST_DEVICE static bool Value(T a, T b) {
    return a != 0 || b != 0;
  }
};

struct Xor {
  template <typename T>
  SYNCLINE_HOST_DEVICE static bool Value(T a, T b) {
    return (a != 0) != (b != 0);
  }
};

}  // namespace comparison

#define SYNCLINE_COMPARISON_FUNCTIONS(FUNCTION) \
  FUNCTION(And)                                 \
  FUNCTION(Equal)                               \
  FUNCTION(Less)                                \
  FUNCTION(LessOrEqual)                         \
  FUNCTION(Or)                                  \
  FUNCTION(Xor)

enum class ComparisonFunction {
#define SYNCLINE_NAME_FUNCTION(name) k##name,
  SYNCLINE_COMPARISON_FUNCTIONS(SYNCLINE_NAME_FUNCTION)
#undef SYNCLINE_NAME_FUNCTION
};
inline constexpr size_t kComparisonFunctions = 0
#define SYNCLINE_COUNT_FUNCTION(name) +1
    SYNCLINE_COMPARISON_FUNCTIONS(SYNCLINE_COUNT_FUNCTION);
#undef SYNCLINE_COUNT_FUNCTION

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_COMPARISON_FUNCTIONS_H_
