#ifndef SYNCLINE_KERNELS_DEVICE_POOLING_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_POOLING_KERNELS_H_

#include <cstdint>

#include "kernels/device/floats.h"
#include "kernels/window.h"

namespace syncline {

class Stream;

// x [planes, in...] becomes y [planes, out...].
struct PoolShape {
  int64_t planes = 0;
  Window window;
};

// kernels/pooling.h has what they compute. Nothing overlaps.
struct PoolingKernels {
  // `indices` may be null.
  void (*max_forward)(Stream& stream, const PoolShape& s, ConstFloats x,
                      Floats y, int32_t* indices) = nullptr;
  void (*max_backward)(Stream& stream, const PoolShape& s,
                       const int32_t* indices, ConstFloats dy, bool accumulate,
                       Floats dx) = nullptr;
  // The indices of all planes, each within all of x. With `column_major` the
  // elements of a plane are counted along its first axis first.
  void (*max_places)(Stream& stream, const PoolShape& s, bool column_major,
                     const int32_t* indices, int64_t* places) = nullptr;

  // `weights` is what AverageWeights says.
  void (*average_forward)(Stream& stream, const PoolShape& s,
                          const float* weights, ConstFloats x,
                          Floats y) = nullptr;
  void (*average_backward)(Stream& stream, const PoolShape& s,
                           const float* weights, ConstFloats dy,
                           bool accumulate, Floats dx) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_POOLING_KERNELS_H_
