#ifndef SYNCLINE_KERNELS_DEVICE_LOCAL_RESPONSE_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_LOCAL_RESPONSE_KERNELS_H_

#include "kernels/local_response.h"

namespace syncline {

class Stream;

// Normalisation by neighbouring channels. kernels/local_response.h has the
// formulas, the shapes and what may overlap.
struct LocalResponseKernels {
  // NormalizeResponse
  void (*forward)(Stream& stream, const LocalResponse& s, const float* x,
                  float* scale, float* y) = nullptr;
  // NormalizeResponseGradient
  void (*backward)(Stream& stream, const LocalResponse& s, const float* x,
                   const float* scale, const float* dy, bool accumulate,
                   float* ratio, float* dx) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_LOCAL_RESPONSE_KERNELS_H_
