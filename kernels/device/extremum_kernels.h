#ifndef SYNCLINE_KERNELS_DEVICE_EXTREMUM_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_EXTREMUM_KERNELS_H_

#include <cstdint>

#include "common/base/dtype.h"
#include "kernels/elementwise/broadcast_shape.h"

namespace syncline {

class Stream;

// x [outer, n, inner] with n > 0; y [outer, inner].
struct ArgMaxShape {
  int64_t outer = 1;
  int64_t n = 1;
  int64_t inner = 1;
  DType dtype = DType::kFloat32;
  bool last = false;  // of equals the last one, else the first
};

// The largest or smallest of many. Arrays do not overlap.
struct ExtremumKernels {
  // A broadcast read backwards: `a` of the shape is the input x, `b` the result
  // y, with 1 for what is reduced. float32.
  struct Pair {
    // from[i] is where in x each y[i] is from, -1 where it is of nothing and so
    // infinite: the first of equals; a NaN wins.
    void (*forward)(Stream& stream, const Broadcast& s, const float* x,
                    float* y, int64_t* from) = nullptr;
    // dx[from[i]] = dy[i]; the others are 0.
    void (*backward)(Stream& stream, const Broadcast& s, const int64_t* from,
                     const float* dy, bool accumulate, float* dx) = nullptr;
  };
  Pair largest;
  Pair smallest;

  // y = where along n the largest is. A NaN is larger than nothing.
  void (*arg_max)(Stream& stream, const ArgMaxShape& s, const void* x,
                  int64_t* y) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_EXTREMUM_KERNELS_H_
