#ifndef SYNCLINE_KERNELS_RESAMPLE_H_
#define SYNCLINE_KERNELS_RESAMPLE_H_

// Resampling along one axis: each place of the result is a weighted sum of a
// few places of the input, the same for all lines. Interpolation along several
// axes is one such pass for each. float32, dense row-major.

#include <cstdint>

#include "kernels/elementwise/host_device.h"

namespace syncline {

// From x [outer, in, inner] to y [outer, out, inner].
struct ResampleShape {
  int64_t outer = 1;
  int64_t in = 0;
  int64_t out = 0;
  int64_t inner = 1;
  int64_t taps = 1;
};

// The places and weights that each place of the result is made of, [out, taps].
struct ResampleTables {
  const int64_t* places = nullptr;  // of the input, each in [0, in)
  const float* weights = nullptr;
};

// A summand. A value of weight zero is left out: infinity there must not make
// NaN.
SYNCLINE_HOST_DEVICE inline float Weighted(float weight, float value) {
  return weight == 0 ? 0.0f : weight * value;
}

// y from x. They may not overlap.
void Resample(const ResampleShape& s, const ResampleTables& tables,
              const float* x, float* y);

// dx, of the shape of x, from dy, of that of y; overwritten or, with
// `accumulate`, added to. They may not overlap.
void ResampleGradient(const ResampleShape& s, const ResampleTables& tables,
                      const float* dy, bool accumulate, float* dx);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_RESAMPLE_H_
