#ifndef SYNCLINE_KERNELS_RESAMPLE_H_
#define SYNCLINE_KERNELS_RESAMPLE_H_

// Resampling along one axis: each place of the result is a weighted sum of a
// few places of the input, the same for all lines. Interpolation along several
// axes is one such pass for each. float32, dense row-major.

#include <cstdint>
#include <vector>

namespace syncline {

struct Resampling {
  int64_t in = 0;  // places along the axis
  int64_t out = 0;
  // Of place o of the result: [o * taps, (o + 1) * taps).
  int64_t taps = 1;
  std::vector<int64_t> places;  // of the input, each in [0, in)
  std::vector<float> weights;
};

// y [outer, out, inner] from x [outer, in, inner]. They may not overlap.
void Resample(const Resampling& r, int64_t outer, int64_t inner, const float* x,
              float* y);

// dx [outer, in, inner] from dy [outer, out, inner], overwritten or, with
// `accumulate`, added to. They may not overlap.
void ResampleGradient(const Resampling& r, int64_t outer, int64_t inner,
                      const float* dy, bool accumulate, float* dx);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_RESAMPLE_H_
