#ifndef SYNCLINE_KERNELS_ELEMENTWISE_REDUCTION_FUNCTIONS_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_REDUCTION_FUNCTIONS_H_

// Reductions y = Result(sum of Term(x)), and Derivative(x, y) of y by x: one
// list, from which the compiler of each device makes its kernels.

#include <cmath>
#include <cstddef>

#include "kernels/elementwise/host_device.h"
#include "kernels/elementwise/vector_math.h"

namespace syncline {

namespace reduction {

struct L1 {
  SYNCLINE_HOST_DEVICE static float Term(float x) { return std::fabs(x); }
  SYNCLINE_HOST_DEVICE static float Result(float sum) { return sum; }
  SYNCLINE_HOST_DEVICE static float Derivative(float x, float) {
    return x > 0 ? 1.0f : (x < 0 ? -1.0f : 0.0f);
  }
};

struct L2 {
  SYNCLINE_HOST_DEVICE static float Term(float x) { return x * x; }
  SYNCLINE_HOST_DEVICE static float Result(float sum) { return std::sqrt(sum); }
  // At 0, where there is none, 0.
  SYNCLINE_HOST_DEVICE static float Derivative(float x, float y) {
    return y == 0 ? 0.0f : x / y;
  }
};

struct SumSquare {
  SYNCLINE_HOST_DEVICE static float Term(float x) { return x * x; }
  SYNCLINE_HOST_DEVICE static float Result(float sum) { return sum; }
  SYNCLINE_HOST_DEVICE static float Derivative(float x, float) {
    return 2.0f * x;
  }
};

struct LogSum {
  SYNCLINE_HOST_DEVICE static float Term(float x) { return x; }
  SYNCLINE_HOST_DEVICE static float Result(float sum) { return std::log(sum); }
  SYNCLINE_HOST_DEVICE static float Derivative(float, float y) {
    return Exp(-y);
  }
};

}  // namespace reduction

#define SYNCLINE_REDUCTION_FUNCTIONS(X) X(L1) X(L2) X(SumSquare) X(LogSum)

enum class ReductionFunction {
#define SYNCLINE_NAME_FUNCTION(name) k##name,
  SYNCLINE_REDUCTION_FUNCTIONS(SYNCLINE_NAME_FUNCTION)
#undef SYNCLINE_NAME_FUNCTION
};
inline constexpr size_t kReductionFunctions = 0
#define SYNCLINE_COUNT_FUNCTION(name) +1
    SYNCLINE_REDUCTION_FUNCTIONS(SYNCLINE_COUNT_FUNCTION);
#undef SYNCLINE_COUNT_FUNCTION

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_REDUCTION_FUNCTIONS_H_
