#ifndef SYNCLINE_KERNELS_DEVICE_POINTWISE_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_POINTWISE_KERNELS_H_

#include <array>
#include <cstdint>

#include "kernels/device/floats.h"
#include "kernels/elementwise/pointwise_functions.h"

namespace syncline {

class Stream;

// Functions of one number, over n elements: the list is
// SYNCLINE_POINTWISE_FUNCTIONS. y may be x, and dx may be dy. NaN stays NaN.
struct PointwiseKernels {
  struct Function {
    void (*forward)(Stream& stream, const PointwiseSettings& settings,
                    int64_t n, ConstFloats x, Floats y) = nullptr;
    // `saved` is what GradientReads(function) says: the input, the output, or
    // nothing, and then it may be null. Null where the function has no
    // derivative.
    void (*backward)(Stream& stream, const PointwiseSettings& settings,
                     int64_t n, ConstFloats saved, ConstFloats dy,
                     bool accumulate, Floats dx) = nullptr;
  };
  std::array<Function, kPointwiseFunctions> functions;

  const Function& operator[](PointwiseFunction function) const {
    return functions[static_cast<size_t>(function)];
  }
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_POINTWISE_KERNELS_H_
