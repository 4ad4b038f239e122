#ifndef SYNCLINE_KERNELS_DEVICE_REDUCTION_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_REDUCTION_KERNELS_H_

#include <array>
#include <cstdint>

#include "kernels/device/floats.h"
#include "kernels/elementwise/broadcast_shape.h"
#include "kernels/elementwise/reduction_functions.h"

namespace syncline {

class Stream;

// A reduction is a broadcast read backwards: `a` of the
// shape is the input x, `b` the result y, with 1 for what is reduced. The error
// of a sum does not grow with its length (kernels/elementwise/row_sums.h).
// Arrays do not overlap.
struct ReductionKernels {
  // y = scale * sum of x.
  void (*sum)(Stream& stream, const Broadcast& s, float scale, ConstFloats x,
              Floats y) = nullptr;
  // dx = scale * dy.
  void (*sum_backward)(Stream& stream, const Broadcast& s, float scale,
                       ConstFloats dy, bool accumulate, Floats dx) = nullptr;

  // The list is SYNCLINE_REDUCTION_FUNCTIONS.
  struct Function {
    void (*forward)(Stream& stream, const Broadcast& s, ConstFloats x,
                    Floats y) = nullptr;
    void (*backward)(Stream& stream, const Broadcast& s, ConstFloats x,
                     ConstFloats y, ConstFloats dy, bool accumulate,
                     Floats dx) = nullptr;
  };
  std::array<Function, kReductionFunctions> functions;

  // y = log of the sum of e^x, shifted by the largest x, so that nothing
  // overflows; by nothing where that is infinite. `sums` is scratch, [b_count].
  void (*log_sum_exp)(Stream& stream, const Broadcast& s, ConstFloats x,
                      float* sums, float* y) = nullptr;
  void (*log_sum_exp_backward)(Stream& stream, const Broadcast& s,
                               ConstFloats x, ConstFloats y, ConstFloats dy,
                               bool accumulate, Floats dx) = nullptr;

  // y = the product of x. `products`, [b_count], is what is not 0, and `zeros`,
  // [b_count], how many are 0: the derivative by a factor is the product of the
  // others. In double, so that it is still there to be divided where the
  // product is too large or too small for a float.
  void (*product)(Stream& stream, const Broadcast& s, ConstFloats x,
                  double* products, double* zeros, float* y) = nullptr;
  void (*product_backward)(Stream& stream, const Broadcast& s, ConstFloats x,
                           const double* products, const double* zeros,
                           ConstFloats dy, bool accumulate,
                           Floats dx) = nullptr;

  const Function& operator[](ReductionFunction function) const {
    return functions[static_cast<size_t>(function)];
  }
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_REDUCTION_KERNELS_H_
