#include "kernels/local_response.h"

#include <algorithm>

#include "kernels/elementwise/inverse_power.h"
#include "kernels/elementwise/loop.h"

namespace syncline {
namespace {

// Calls row(offset, neighbour) for the planes of channels [c - before, c +
// after], as far as there are.
template <typename Row>
void ForNeighbours(const LocalResponse& s, int64_t c, int64_t before,
                   int64_t after, Row row) {
  const int64_t first = std::max<int64_t>(0, c - before);
  const int64_t last = std::min(s.channels - 1, c + after);
  for (int64_t n = first; n <= last; ++n) row(n * s.plane);
}

}  // namespace

void NormalizeResponse(const LocalResponse& s, const float* x, float* scale,
                       float* y) {
  const float factor = s.alpha / static_cast<float>(s.size);
  const int64_t sample = s.channels * s.plane;
  for (int64_t n = 0; n < s.batch; ++n) {
    const float* const in = x + n * sample;
    float* const sums = scale + n * sample;
    for (int64_t c = 0; c < s.channels; ++c) {
      float* const sum = sums + c * s.plane;
      std::fill_n(sum, s.plane, s.bias);
      ForNeighbours(s, c, s.before(), s.after(), [&](int64_t at) {
        Emit(s.plane, /*accumulate=*/true, sum,
             [=](int64_t i) { return factor * (in[at + i] * in[at + i]); });
      });
    }
  }
  WithInversePower(s.beta, [&](auto power) {
    Emit(s.batch * sample, /*accumulate=*/false, y,
         [=](int64_t i) { return x[i] * power(scale[i]); });
  });
}

// dy * s^-beta, and for each channel that x is counted in dy * x * s^(-beta-1).
void NormalizeResponseGradient(const LocalResponse& s, const float* x,
                               const float* scale, const float* dy,
                               bool accumulate, float* ratio, float* dx) {
  const int64_t sample = s.channels * s.plane;
  const float factor = -2.0f * s.beta * s.alpha / static_cast<float>(s.size);
  WithInversePower(s.beta, [&](auto power) {
    Emit(s.batch * sample, /*accumulate=*/false, ratio, [=](int64_t i) {
      return factor * (dy[i] * x[i] * power(scale[i]) / scale[i]);
    });
    Emit(s.batch * sample, accumulate, dx,
         [=](int64_t i) { return dy[i] * power(scale[i]); });
  });
  for (int64_t n = 0; n < s.batch; ++n) {
    const float* const ratios = ratio + n * sample;
    for (int64_t c = 0; c < s.channels; ++c) {
      const int64_t row = n * sample + c * s.plane;
      // x is in the window of a channel that is up to `after` before it.
      ForNeighbours(s, c, s.after(), s.before(), [&](int64_t at) {
        Emit(s.plane, /*accumulate=*/true, dx + row,
             [=](int64_t i) { return x[row + i] * ratios[at + i]; });
      });
    }
  }
}

}  // namespace syncline
