#ifndef SYNCLINE_KERNELS_DEVICE_INTEGER_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_INTEGER_KERNELS_H_

#include <array>
#include <cstdint>

#include "kernels/device/data_error.h"
#include "kernels/elementwise/broadcast_shape.h"
#include "kernels/elementwise/by_dtype.h"
#include "kernels/elementwise/integer_functions.h"
#include "kernels/elementwise/strided.h"

namespace syncline {

class Stream;

// Arithmetic on int32, int64, uint8 and bool, which counts as the numbers 0 and
// 1: kernels/elementwise/integer_functions.h has the functions. All arrays of a
// call are of one type.
struct IntegerKernels {
  // y = x, which lies under the dense y in strides.
  using Spread = void (*)(Stream& stream, const Strided<1>& walk, const void* x,
                          void* y);
  ByDType<Spread> spread;

  // y = function(y, x), x likewise. Where there is no result y stays, and the
  // kind of the report is an IntegerError, its value x.
  using Combine = void (*)(Stream& stream, const Strided<1>& walk,
                           const void* x, void* y, const ErrorSlot& errors);
  std::array<ByDType<Combine>, kIntegerFunctions> combinations;

  // Each element of y, which is operand b of the shape, is what the function
  // makes of the elements of x, operand a, that are over it; of none, its
  // neutral number. Null where there is no such number.
  using Reduce = void (*)(Stream& stream, const Broadcast& s, const void* x,
                          void* y);
  std::array<ByDType<Reduce>, kIntegerFunctions> reductions;

  // y = function(x), n elements. y may be x.
  using Unary = void (*)(Stream& stream, int64_t n, const void* x, void* y);
  std::array<ByDType<Unary>, kIntegerUnaryFunctions> unary;

  // n elements between bounds, arrays of one element, each of which may be
  // null: no bound. If low is above high, the result is high. y may be x.
  using Clip = void (*)(Stream& stream, int64_t n, const void* x,
                        const void* low, const void* high, void* y);
  ByDType<Clip> clip;

  Combine Combination(IntegerFunction function, DType dtype) const {
    return combinations[static_cast<size_t>(function)][dtype];
  }
  Reduce Reduction(IntegerFunction function, DType dtype) const {
    return reductions[static_cast<size_t>(function)][dtype];
  }
  Unary Of(IntegerUnary function, DType dtype) const {
    return unary[static_cast<size_t>(function)][dtype];
  }
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_INTEGER_KERNELS_H_
