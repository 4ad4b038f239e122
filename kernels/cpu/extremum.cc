#include <algorithm>
#include <limits>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/device/extremum_kernels.h"
#include "kernels/elementwise/broadcast.h"

namespace syncline {
namespace {

struct Larger {
  static constexpr float kOfNothing = -std::numeric_limits<float>::infinity();
  static bool Beats(float x, float y) { return x > y; }
};
struct Smaller {
  static constexpr float kOfNothing = std::numeric_limits<float>::infinity();
  static bool Beats(float x, float y) { return x < y; }
};

// The best so far.
struct Best {
  float value;
  int64_t from;

  template <typename F>
  void Meet(float candidate, int64_t at) {
    if (from < 0 || F::Beats(candidate, value) ||
        (candidate != candidate && value == value)) {
      value = candidate;
      from = at;
    }
  }
};

template <typename F>
void Forward(Stream& stream, const Broadcast& s, const float* x, float* y,
             int64_t* from) {
  const CpuKernel kernel(stream);
  std::fill_n(y, s.b_count, F::kOfNothing);
  std::fill_n(from, s.b_count, int64_t{-1});
  ForEachRow(s, [&](auto, auto sb, int64_t, int64_t a, int64_t b) {
    if constexpr (sb == 0) {
      Best best = {y[b], from[b]};
      for (int64_t i = 0; i < s.inner; ++i) {
        best.Meet<F>(x[a + i], a + i);
      }
      y[b] = best.value;
      from[b] = best.from;
    } else {
      for (int64_t i = 0; i < s.inner; ++i) {
        Best best = {y[b + i], from[b + i]};
        best.Meet<F>(x[a + i], a + i);
        y[b + i] = best.value;
        from[b + i] = best.from;
      }
    }
  });
}

void Backward(Stream& stream, const Broadcast& s, const int64_t* from,
              const float* dy, bool accumulate, float* dx) {
  const CpuKernel kernel(stream);
  if (!accumulate) std::fill_n(dx, s.a_count, 0.0f);
  for (int64_t i = 0; i < s.b_count; ++i) {
    if (from[i] >= 0) dx[from[i]] += dy[i];
  }
}

template <typename T>
void ArgMaxOf(const ArgMaxShape& s, const void* from, int64_t* y) {
  const T* const x = static_cast<const T*>(from);
  for (int64_t o = 0; o < s.outer; ++o) {
    for (int64_t i = 0; i < s.inner; ++i) {
      const T* const line = x + o * s.n * s.inner + i;
      int64_t best = 0;
      for (int64_t k = 1; k < s.n; ++k) {
        const T value = line[k * s.inner];
        const T most = line[best * s.inner];
        if (value > most || (s.last && value == most)) best = k;
      }
      *y++ = best;
    }
  }
}

void ArgMax(Stream& stream, const ArgMaxShape& s, const void* x, int64_t* y) {
  const CpuKernel kernel(stream);
  switch (s.dtype) {
    case DType::kFloat32:
      return ArgMaxOf<float>(s, x, y);
    case DType::kFloat64:
      return ArgMaxOf<double>(s, x, y);
    case DType::kInt32:
      return ArgMaxOf<int32_t>(s, x, y);
    case DType::kInt64:
      return ArgMaxOf<int64_t>(s, x, y);
    default:
      return ArgMaxOf<uint8_t>(s, x, y);
  }
}

}  // namespace

const ExtremumKernels& CpuExtremumKernels() {
  static constexpr ExtremumKernels kKernels = {
      .largest = {Forward<Larger>, Backward},
      .smallest = {Forward<Smaller>, Backward},
      .arg_max = ArgMax};
  return kKernels;
}

}  // namespace syncline
