#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/device/power_kernels.h"
#include "kernels/elementwise/binary_loop.h"
#include "kernels/elementwise/power_functions.h"

namespace syncline {
namespace {

// The one exponent of all elements; 0, which has no function of its own, where
// there are several.
float ExponentOfAll(const Broadcast& s, const float* b) {
  return s.b_count == 1 ? *b : 0.0f;
}

void Forward(Stream& stream, const Broadcast& s, const float* a, const float* b,
             float* y) {
  const CpuKernel kernel(stream);
  WithExponent(ExponentOfAll(s, b), [&](auto power) {
    ApplyBinary(s, a, b, y,
                [=](float p, float q) { return power.Value(p, q); });
  });
}

void BackwardA(Stream& stream, const Broadcast& s, const float* a,
               const float* b, const float* dy, bool accumulate, float* da) {
  const CpuKernel kernel(stream);
  WithExponent(ExponentOfAll(s, b), [&](auto power) {
    BinaryGradient(s, Side::kA, accumulate, da,
                   [=](int64_t o, int64_t ia, int64_t ib) {
                     return dy[o] * power.Derivative(a[ia], b[ib]);
                   });
  });
}

void BackwardB(Stream& stream, const Broadcast& s, const float* a,
               const float* y, const float* dy, bool accumulate, float* db) {
  const CpuKernel kernel(stream);
  BinaryGradient(s, Side::kB, accumulate, db,
                 [=](int64_t o, int64_t ia, int64_t) {
                   return ExponentGradient(a[ia], y[o], dy[o]);
                 });
}

}  // namespace

const PowerKernels& CpuPowerKernels() {
  static constexpr PowerKernels kKernels = {
      .forward = Forward, .backward_a = BackwardA, .backward_b = BackwardB};
  return kKernels;
}

}  // namespace syncline
