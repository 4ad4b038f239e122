#include "kernels/resample.h"

#include <algorithm>
#include <type_traits>

#include "kernels/elementwise/loop.h"

namespace syncline {
namespace {

// A value of weight zero is left out: infinity there must not make NaN.
float Weighted(float weight, float value) {
  return weight == 0 ? 0.0f : weight * value;
}

// Calls run with the number of taps as an integral constant where it is small.
template <typename Run>
void WithTaps(const Resampling& r, Run run) {
  if (r.taps == 1) return run(std::integral_constant<int64_t, 1>());
  if (r.taps == 2) return run(std::integral_constant<int64_t, 2>());
  run(r.taps);
}

// Lines whose places are neighbours in memory.
void ResampleDense(const Resampling& r, int64_t outer, const float* x,
                   float* y) {
  const float* const weights = r.weights.data();
  const int64_t* const places = r.places.data();
  WithTaps(r, [&](auto taps) {
    for (int64_t line = 0; line < outer; ++line, x += r.in, y += r.out) {
      for (int64_t o = 0; o < r.out; ++o) {
        float sum = 0;
        for (int64_t t = o * taps; t < (o + 1) * taps; ++t) {
          sum += Weighted(weights[t], x[places[t]]);
        }
        y[o] = sum;
      }
    }
  });
}

void AddDenseGradient(const Resampling& r, int64_t outer, const float* dy,
                      float* dx) {
  const float* const weights = r.weights.data();
  const int64_t* const places = r.places.data();
  WithTaps(r, [&](auto taps) {
    for (int64_t line = 0; line < outer; ++line, dx += r.in, dy += r.out) {
      for (int64_t o = 0; o < r.out; ++o) {
        for (int64_t t = o * taps; t < (o + 1) * taps; ++t) {
          dx[places[t]] += Weighted(weights[t], dy[o]);
        }
      }
    }
  });
}

}  // namespace

void Resample(const Resampling& r, int64_t outer, int64_t inner, const float* x,
              float* y) {
  if (inner == 1) return ResampleDense(r, outer, x, y);
  for (int64_t line = 0; line < outer; ++line) {
    for (int64_t o = 0; o < r.out; ++o, y += inner) {
      bool is_written = false;
      for (int64_t t = o * r.taps; t < (o + 1) * r.taps; ++t) {
        const float weight = r.weights[t];
        if (weight == 0) continue;
        const float* const from = x + (line * r.in + r.places[t]) * inner;
        Emit(inner, is_written, y, [=](int64_t j) { return weight * from[j]; });
        is_written = true;
      }
      if (!is_written) std::fill_n(y, inner, 0.0f);
    }
  }
}

void ResampleGradient(const Resampling& r, int64_t outer, int64_t inner,
                      const float* dy, bool accumulate, float* dx) {
  if (!accumulate) std::fill_n(dx, outer * r.in * inner, 0.0f);
  if (inner == 1) return AddDenseGradient(r, outer, dy, dx);
  for (int64_t line = 0; line < outer; ++line) {
    for (int64_t o = 0; o < r.out; ++o, dy += inner) {
      for (int64_t t = o * r.taps; t < (o + 1) * r.taps; ++t) {
        const float weight = r.weights[t];
        if (weight == 0) continue;
        Emit(inner, /*accumulate=*/true,
             dx + (line * r.in + r.places[t]) * inner,
             [=](int64_t j) { return weight * dy[j]; });
      }
    }
  }
}

}  // namespace syncline
