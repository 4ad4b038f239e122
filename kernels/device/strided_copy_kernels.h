#ifndef SYNCLINE_KERNELS_DEVICE_STRIDED_COPY_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_STRIDED_COPY_KERNELS_H_

#include <cstddef>

#include "kernels/device/floats.h"
#include "kernels/elementwise/broadcast_shape.h"
#include "kernels/elementwise/strided.h"

namespace syncline {

class Stream;

// Elements that are moved, repeated or left out: slices, transposes, tiles and
// broadcasts. The walk is over a dense array, along with one in strides under
// it. Arrays do not overlap.
struct StridedCopyKernels {
  // The dense array `y` from `x` in strides. Elements of 1, 2, 4 or 8 bytes.
  void (*copy)(Stream& stream, const Strided<1>& walk, size_t element_bytes,
               const void* x, void* y) = nullptr;
  // `dx` in strides from the dense `dy`; what the walk does not come to stays.
  // REQUIRES: the walk comes to each element of dx at most once.
  void (*scatter)(Stream& stream, const Strided<1>& walk, ConstFloats dy,
                  Floats dx) = nullptr;
  // The same, but dx += dy, in order of dy; to an element several times.
  void (*add)(Stream& stream, const Strided<1>& walk, ConstFloats dy,
              Floats dx) = nullptr;
  // Each element of `dx`, which is operand b of `repeats`, is the sum of dy
  // where it was repeated. The error does not grow with the number of
  // repetitions (kernels/elementwise/row_sums.h).
  void (*add_repeated)(Stream& stream, const Broadcast& repeats, ConstFloats dy,
                       bool accumulate, Floats dx) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_STRIDED_COPY_KERNELS_H_
