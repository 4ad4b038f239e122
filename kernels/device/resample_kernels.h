#ifndef SYNCLINE_KERNELS_DEVICE_RESAMPLE_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_RESAMPLE_KERNELS_H_

#include "kernels/resample.h"

namespace syncline {

class Stream;

// Weighted sums along an axis. kernels/resample.h has what they compute; the
// tables lie in memory of the device. No overlap.
struct ResampleKernels {
  // Resample
  void (*forward)(Stream& stream, const ResampleShape& s,
                  const ResampleTables& tables, const float* x,
                  float* y) = nullptr;
  // ResampleGradient
  void (*backward)(Stream& stream, const ResampleShape& s,
                   const ResampleTables& tables, const float* dy,
                   bool accumulate, float* dx) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_RESAMPLE_KERNELS_H_
