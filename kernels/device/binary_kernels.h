#ifndef SYNCLINE_KERNELS_DEVICE_BINARY_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_BINARY_KERNELS_H_

#include <array>

#include "kernels/device/floats.h"
#include "kernels/elementwise/binary_functions.h"
#include "kernels/elementwise/broadcast_shape.h"

namespace syncline {

class Stream;

// Functions of two numbers, element by element, broadcast: the list is
// SYNCLINE_BINARY_FUNCTIONS. NaN stays NaN.
struct BinaryKernels {
  struct Function {
    // y may be a or b where that has the result's shape.
    void (*forward)(Stream& stream, const Broadcast& s, ConstFloats a,
                    ConstFloats b, Floats y) = nullptr;
    // The gradient of one operand, into `dx` of that operand's shape: the sum
    // over where it was repeated. Its error does not grow with the number of
    // repetitions. Of a, b and y it reads what BinaryReadsOf says; the others
    // may be null. dx may be dy where the operand has the result's shape.
    using Backward = void (*)(Stream& stream, const Broadcast& s, ConstFloats a,
                              ConstFloats b, ConstFloats y, ConstFloats dy,
                              bool accumulate, Floats dx);
    Backward backward_a = nullptr;
    Backward backward_b = nullptr;
  };
  std::array<Function, kBinaryFunctions> functions;

  const Function& operator[](BinaryFunction function) const {
    return functions[static_cast<size_t>(function)];
  }
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_BINARY_KERNELS_H_
