#ifndef SYNCLINE_KERNELS_DEVICE_SELECT_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_SELECT_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/device/floats.h"
#include "kernels/elementwise/broadcast_shape.h"
#include "kernels/elementwise/strided.h"

namespace syncline {

class Stream;

// One of two arrays, element by element, as a condition says: 1 or 0 in each
// byte. All three may be repeated.
struct SelectKernels {
  // y = a where the condition is 1, else b. The condition, a and b lie under
  // the dense result in strides. Elements of 1, 2, 4 or 8 bytes. Arrays do not
  // overlap.
  void (*forward)(Stream& stream, const Strided<3>& walk, size_t element_bytes,
                  const uint8_t* condition, const void* a, const void* b,
                  void* y) = nullptr;
  // The gradient of one of them: dy where it was chosen, that is, where the
  // condition is `chosen`; summed over where it was repeated. Operand
  // a of the shape is that array, and b is the condition. dx may be dy where it
  // has the result's shape.
  void (*backward)(Stream& stream, const Broadcast& s, bool chosen,
                   const uint8_t* condition, ConstFloats dy, bool accumulate,
                   Floats dx) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_SELECT_KERNELS_H_
