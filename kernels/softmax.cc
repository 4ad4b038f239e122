#include "kernels/softmax.h"

#include <cmath>

#include "kernels/elementwise/loop.h"
#include "kernels/elementwise/vector_math.h"

namespace syncline {
namespace {

// Calls line(offset, stride) for each line of s.n elements, `stride` an
// integral constant 1 where lines are contiguous.
template <typename Line>
void ForEachLine(const SoftmaxShape& s, Line line) {
  if (s.inner == 1) {
    for (int64_t o = 0; o < s.outer; ++o) {
      line(o * s.n, std::integral_constant<int64_t, 1>());
    }
    return;
  }
  for (int64_t o = 0; o < s.outer; ++o) {
    for (int64_t i = 0; i < s.inner; ++i) line(o * s.n * s.inner + i, s.inner);
  }
}

template <typename Stride>
float Maximum(int64_t n, const float* x, Stride stride) {
  return MaximumOf(n, [=](int64_t i) { return x[i * stride]; });
}

}  // namespace

void Softmax(const SoftmaxShape& s, const float* x, float* y) {
  ForEachLine(s, [&](int64_t at, auto stride) {
    const float* const in = x + at;
    float* const out = y + at;
    const float max = Maximum(s.n, in, stride);
    SYNCLINE_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < s.n; ++i) {
      out[i * stride] = Exp(in[i * stride] - max);
    }
    const float scale =
        1.0f / SumOf(s.n, [&](int64_t i) { return out[i * stride]; });
    for (int64_t i = 0; i < s.n; ++i) out[i * stride] *= scale;
  });
}

void LogSoftmax(const SoftmaxShape& s, const float* x, float* y) {
  ForEachLine(s, [&](int64_t at, auto stride) {
    const float* const in = x + at;
    float* const out = y + at;
    const float max = Maximum(s.n, in, stride);
    const float log_sum = std::log(
        SumOf(s.n, [&](int64_t i) { return Exp(in[i * stride] - max); }));
    SYNCLINE_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < s.n; ++i) {
      out[i * stride] = (in[i * stride] - max) - log_sum;
    }
  });
}

void SoftmaxGradient(const SoftmaxShape& s, const float* y, const float* dy,
                     bool accumulate, float* dx) {
  ForEachLine(s, [&](int64_t at, auto stride) {
    const float dot = SumOf(s.n, [&](int64_t i) {
      return y[at + i * stride] * dy[at + i * stride];
    });
    SYNCLINE_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < s.n; ++i) {
      const int64_t j = at + i * stride;
      const float value = y[j] * (dy[j] - dot);
      dx[j] = accumulate ? dx[j] + value : value;
    }
  });
}

void LogSoftmaxGradient(const SoftmaxShape& s, const float* y, const float* dy,
                        bool accumulate, float* dx) {
  ForEachLine(s, [&](int64_t at, auto stride) {
    const float sum =
        SumOf(s.n, [&](int64_t i) { return dy[at + i * stride]; });
    SYNCLINE_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < s.n; ++i) {
      const int64_t j = at + i * stride;
      const float value = dy[j] - Exp(y[j]) * sum;
      dx[j] = accumulate ? dx[j] + value : value;
    }
  });
}

}  // namespace syncline
