#include "kernels/resample.h"

#include <algorithm>
#include <type_traits>

#include "kernels/elementwise/loop.h"

namespace syncline {
namespace {

// Calls run with the number of taps as an integral constant where it is small.
template <typename Run>
void WithTaps(const ResampleShape& s, Run run) {
  if (s.taps == 1) return run(std::integral_constant<int64_t, 1>());
  if (s.taps == 2) return run(std::integral_constant<int64_t, 2>());
  run(s.taps);
}

// Lines whose places are neighbours in memory.
void ResampleDense(const ResampleShape& s, const ResampleTables& tables,
                   const float* x, float* y) {
  const float* const weights = tables.weights;
  const int64_t* const places = tables.places;
  WithTaps(s, [&](auto taps) {
    for (int64_t line = 0; line < s.outer; ++line, x += s.in, y += s.out) {
      for (int64_t o = 0; o < s.out; ++o) {
        float sum = 0;
        for (int64_t t = o * taps; t < (o + 1) * taps; ++t) {
          sum += Weighted(weights[t], x[places[t]]);
        }
        y[o] = sum;
      }
    }
  });
}

void AddDenseGradient(const ResampleShape& s, const ResampleTables& tables,
                      const float* dy, float* dx) {
  const float* const weights = tables.weights;
  const int64_t* const places = tables.places;
  WithTaps(s, [&](auto taps) {
    for (int64_t line = 0; line < s.outer; ++line, dx += s.in, dy += s.out) {
      for (int64_t o = 0; o < s.out; ++o) {
        for (int64_t t = o * taps; t < (o + 1) * taps; ++t) {
          dx[places[t]] += Weighted(weights[t], dy[o]);
        }
      }
    }
  });
}

}  // namespace

void Resample(const ResampleShape& s, const ResampleTables& tables,
              const float* x, float* y) {
  if (s.inner == 1) return ResampleDense(s, tables, x, y);
  for (int64_t line = 0; line < s.outer; ++line) {
    for (int64_t o = 0; o < s.out; ++o, y += s.inner) {
      bool is_written = false;
      for (int64_t t = o * s.taps; t < (o + 1) * s.taps; ++t) {
        const float weight = tables.weights[t];
        if (weight == 0) continue;
        const float* const from =
            x + (line * s.in + tables.places[t]) * s.inner;
        Emit(s.inner, is_written, y,
             [=](int64_t j) { return weight * from[j]; });
        is_written = true;
      }
      if (!is_written) std::fill_n(y, s.inner, 0.0f);
    }
  }
}

void ResampleGradient(const ResampleShape& s, const ResampleTables& tables,
                      const float* dy, bool accumulate, float* dx) {
  if (!accumulate) std::fill_n(dx, s.outer * s.in * s.inner, 0.0f);
  if (s.inner == 1) return AddDenseGradient(s, tables, dy, dx);
  for (int64_t line = 0; line < s.outer; ++line) {
    for (int64_t o = 0; o < s.out; ++o, dy += s.inner) {
      for (int64_t t = o * s.taps; t < (o + 1) * s.taps; ++t) {
        const float weight = tables.weights[t];
        if (weight == 0) continue;
        Emit(s.inner, /*accumulate=*/true,
             dx + (line * s.in + tables.places[t]) * s.inner,
             [=](int64_t j) { return weight * dy[j]; });
      }
    }
  }
}

}  // namespace syncline
