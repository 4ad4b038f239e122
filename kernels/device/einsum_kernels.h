#ifndef SYNCLINE_KERNELS_DEVICE_EINSUM_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_EINSUM_KERNELS_H_

#include <cstdint>

#include "common/base/dtype.h"
#include "kernels/elementwise/strided.h"

namespace syncline {

class Stream;

// An equation, term by term: a walk over all of its labels, along with the
// result (array 0) and the operands (1 and 2). The terms are those of one or
// two operands.
using EinsumWalk = Strided<3>;

// The equations that are no matrix product: a diagonal, a sum over one operand,
// one operand alone. Terms are added in order of the walk; sums of many are
// added up in fp64. Arrays do not overlap.
struct EinsumKernels {
  // y[...] = the sum of a[...] * b[...], or without b of a[...]. float32 or
  // float64; y has `count` elements. `scratch` has scratch_bytes.
  void (*forward)(Stream& stream, const EinsumWalk& walk, DType dtype,
                  int64_t count, const void* a, const void* b, void* y,
                  void* scratch) = nullptr;
  // The gradient of operand 0 or 1, of `count` elements: dx = the sum of dy *
  // other, or without `other` of dy; or += with `accumulate`. float32.
  void (*backward)(Stream& stream, const EinsumWalk& walk, int operand,
                   int64_t count, const float* other, const float* dy,
                   bool accumulate, float* dx, void* scratch) = nullptr;
  // For a result of `count` elements.
  int64_t (*scratch_bytes)(const EinsumWalk& walk, int64_t count) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_EINSUM_KERNELS_H_
