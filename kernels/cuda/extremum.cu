#include <cmath>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/walk/broadcast_walk.h"
#include "kernels/device/extremum_kernels.h"

namespace syncline {
namespace {

using cuda::BroadcastPlace;
using cuda::Global;
using cuda::OnDevice;

struct Largest {
  SYNCLINE_DEVICE static float OfNothing() { return -INFINITY; }
  SYNCLINE_DEVICE static bool Beats(float x, float y) { return x > y; }
};
struct Smallest {
  SYNCLINE_DEVICE static float OfNothing() { return INFINITY; }
  SYNCLINE_DEVICE static bool Beats(float x, float y) { return x < y; }
};

// The place of the better of two elements; -1 is none. The first of equals, and
// of those that are NaN, which beat all others.
template <typename F>
struct Better {
  Global<const float> x;

  SYNCLINE_DEVICE int64_t operator()(int64_t a, int64_t b) const {
    if (a < 0 || b < 0) return a < 0 ? b : a;
    const float of_a = x[a];
    const float of_b = x[b];
    const bool a_wins = F::Beats(of_a, of_b) || (of_a != of_a && of_b == of_b);
    const bool b_wins = F::Beats(of_b, of_a) || (of_b != of_b && of_a == of_a);
    if (a_wins != b_wins) return a_wins ? a : b;
    return a < b ? a : b;
  }
};

template <typename F>
void Forward(Stream& stream, const Broadcast& s, const float* x, float* y,
             int64_t* from) {
  cuda::FoldRepeated(
      stream, s, Side::kB, int64_t{-1},
      [] SYNCLINE_DEVICE(const BroadcastPlace& at) -> int64_t { return at.a; },
      Better<F>{OnDevice(x)},
      [x = OnDevice(x), y = OnDevice(y), from = OnDevice(from)] SYNCLINE_DEVICE(
          int64_t i, int64_t best) {
        from[i] = best;
        y[i] = best < 0 ? F::OfNothing() : static_cast<float>(x[best]);
      });
}

// An element of x is of one element of y.
void Backward(Stream& stream, const Broadcast& s, const int64_t* from,
              const float* dy, bool accumulate, float* dx) {
  if (!accumulate) {
    cuda::LaunchElements(
        stream, s.a_count,
        [dx = OnDevice(dx)] SYNCLINE_DEVICE(int64_t i) { dx[i] = 0; });
  }
  cuda::LaunchElements(stream, s.b_count,
                       [from = OnDevice(from), dy = OnDevice(dy),
                        dx = OnDevice(dx)] SYNCLINE_DEVICE(int64_t i) {
                         const int64_t at = from[i];
                         if (at >= 0) dx[at] += dy[i];
                       });
}

// A thread goes along a line alone.
template <typename T>
struct ArgMaxLine {
  ArgMaxShape s;
  Global<const T> x;
  Global<int64_t> y;

  SYNCLINE_DEVICE void operator()(int64_t line) const {
    const int64_t begin = line / s.inner * s.n * s.inner + line % s.inner;
    int64_t best = 0;
    T most = x[begin];
    for (int64_t k = 1; k < s.n; ++k) {
      const T value = x[begin + k * s.inner];
      if (!(value > most || (s.last && value == most))) continue;
      best = k;
      most = value;
    }
    y[line] = best;
  }
};

template <typename T>
void ArgMaxOf(Stream& stream, const ArgMaxShape& s, const void* x, int64_t* y) {
  cuda::LaunchElements(
      stream, s.outer * s.inner,
      ArgMaxLine<T>{s, OnDevice(static_cast<const T*>(x)), OnDevice(y)});
}

void ArgMax(Stream& stream, const ArgMaxShape& s, const void* x, int64_t* y) {
  switch (s.dtype) {
    case DType::kFloat32:
      return ArgMaxOf<float>(stream, s, x, y);
    case DType::kFloat64:
      return ArgMaxOf<double>(stream, s, x, y);
    case DType::kInt32:
      return ArgMaxOf<int32_t>(stream, s, x, y);
    case DType::kInt64:
      return ArgMaxOf<int64_t>(stream, s, x, y);
    default:
      return ArgMaxOf<uint8_t>(stream, s, x, y);
  }
}

}  // namespace

const ExtremumKernels& CudaExtremumKernels() {
  static constexpr ExtremumKernels kKernels = {
      .largest = {Forward<Largest>, Backward},
      .smallest = {Forward<Smallest>, Backward},
      .arg_max = ArgMax};
  return kKernels;
}

}  // namespace syncline
