#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/walk/broadcast_walk.h"
#include "kernels/device/power_kernels.h"
#include "kernels/elementwise/power_functions.h"

namespace syncline {
namespace {

using cuda::BroadcastPlace;
using cuda::Global;
using cuda::OnDevice;

// The one exponent of all elements; 0, which has no function of its own, where
// there are several.
struct Exponents {
  bool is_one;
  Global<const float> b;

  SYNCLINE_DEVICE float OfAll() const {
    return is_one ? static_cast<float>(b[0]) : 0.0f;
  }
};

struct Power {
  Exponents exponents;
  Global<const float> a;
  Global<float> y;

  SYNCLINE_DEVICE void operator()(const BroadcastPlace& at) const {
    const float base = a[at.a];
    const float exponent = exponents.b[at.b];
    float value = 0;
    WithExponent(exponents.OfAll(),
                 [&](auto power) { value = power.Value(base, exponent); });
    y[at.result] = value;
  }
};

struct BaseGradient {
  Exponents exponents;
  Global<const float> a;
  Global<const float> dy;

  SYNCLINE_DEVICE float operator()(const BroadcastPlace& at) const {
    const float base = a[at.a];
    const float exponent = exponents.b[at.b];
    float derivative = 0;
    WithExponent(exponents.OfAll(), [&](auto power) {
      derivative = power.Derivative(base, exponent);
    });
    return dy[at.result] * derivative;
  }
};

void Forward(Stream& stream, const Broadcast& s, const float* a, const float* b,
             float* y) {
  cuda::LaunchBroadcast(
      stream, s,
      Power{{s.b_count == 1, OnDevice(b)}, OnDevice(a), OnDevice(y)});
}

void BackwardA(Stream& stream, const Broadcast& s, const float* a,
               const float* b, const float* dy, bool accumulate, float* da) {
  cuda::AddUpGradient(
      stream, s, Side::kA,
      BaseGradient{{s.b_count == 1, OnDevice(b)}, OnDevice(a), OnDevice(dy)},
      accumulate, da);
}

void BackwardB(Stream& stream, const Broadcast& s, const float* a,
               const float* y, const float* dy, bool accumulate, float* db) {
  cuda::AddUpGradient(
      stream, s, Side::kB,
      [a = OnDevice(a), y = OnDevice(y),
       dy = OnDevice(dy)] SYNCLINE_DEVICE(const BroadcastPlace& at) -> float {
        return ExponentGradient(a[at.a], y[at.result], dy[at.result]);
      },
      accumulate, db);
}

}  // namespace

const PowerKernels& CudaPowerKernels() {
  static constexpr PowerKernels kKernels = {
      .forward = Forward, .backward_a = BackwardA, .backward_b = BackwardB};
  return kKernels;
}

}  // namespace syncline
