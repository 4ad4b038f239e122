#ifndef SYNCLINE_KERNELS_DEVICE_CUMULATIVE_SUM_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_CUMULATIVE_SUM_KERNELS_H_

#include <cstdint>

#include "common/base/dtype.h"

namespace syncline {

class Stream;

// Arrays [outer, n, inner], summed along n.
struct CumulativeSumShape {
  int64_t outer = 1;
  int64_t n = 1;
  int64_t inner = 1;
  bool exclusive = false;  // an element is not part of its own sum
  bool reverse = false;    // from the end
};

struct CumulativeSumKernels {
  // y[k] = the sum of x up to k. float32, which is added up in fp64, float64,
  // int32 or int64, which wrap around. y may be x.
  void (*forward)(Stream& stream, const CumulativeSumShape& s, DType dtype,
                  const void* x, void* y) = nullptr;
  // dx[k] = the sum of dy that x[k] is part of: the same, the other way.
  // float32, in fp64. dx may be dy.
  void (*backward)(Stream& stream, const CumulativeSumShape& s, const float* dy,
                   bool accumulate, float* dx) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_CUMULATIVE_SUM_KERNELS_H_
