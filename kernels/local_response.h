#ifndef SYNCLINE_KERNELS_LOCAL_RESPONSE_H_
#define SYNCLINE_KERNELS_LOCAL_RESPONSE_H_

// Local response normalisation: Krizhevsky et al., NIPS 2012, sec. 3.3.

#include <cstdint>

namespace syncline {

// x and y are [batch, channels, plane], float32, row-major:
//
//   y = x * s^-beta,   s = bias + alpha / size * sum of x^2
//
// over the `size` channels around, (size - 1) / 2 of them before, as far as
// there are.
struct LocalResponse {
  int64_t batch = 0;
  int64_t channels = 0;
  int64_t plane = 0;
  int64_t size = 1;
  float alpha = 1e-4f;
  float beta = 0.75f;
  float bias = 1;

  int64_t before() const { return (size - 1) / 2; }
  int64_t after() const { return size - 1 - before(); }
};

// Leaves s in `scale`, of x's shape. y may be x.
void NormalizeResponse(const LocalResponse& s, const float* x, float* scale,
                       float* y);

// dx, overwritten or added to. `ratio`, of x's shape, is overwritten. dx may be
// dy.
void NormalizeResponseGradient(const LocalResponse& s, const float* x,
                               const float* scale, const float* dy,
                               bool accumulate, float* ratio, float* dx);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_LOCAL_RESPONSE_H_
