#include <cmath>

#include "common/base/random.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/device/dropout_kernels.h"
#include "kernels/elementwise/loop.h"

namespace syncline {
namespace {

// Two elements share a random number: 32 bits decide each.
void Draw(Stream& stream, int64_t n, uint64_t seed, double ratio,
          uint8_t* mask) {
  const CpuKernel kernel(stream);
  const uint64_t threshold = static_cast<uint64_t>(std::ldexp(ratio, 32));
  Random random(seed);
  for (int64_t i = 0; i < n; i += 2) {
    const uint64_t bits = random.Next();
    mask[i] = (bits & 0xffffffffu) >= threshold;
    if (i + 1 < n) mask[i + 1] = (bits >> 32) >= threshold;
  }
}

void Apply(Stream& stream, int64_t n, float scale, const uint8_t* mask,
           const float* x, bool accumulate, float* y) {
  const CpuKernel kernel(stream);
  Emit(n, accumulate, y,
       [=](int64_t i) { return mask[i] != 0 ? x[i] * scale : 0.0f; });
}

void Widen(Stream& stream, int64_t n, const uint8_t* mask, float* y) {
  const CpuKernel kernel(stream);
  Emit(n, /*accumulate=*/false, y,
       [=](int64_t i) { return static_cast<float>(mask[i]); });
}

}  // namespace

const DropoutKernels& CpuDropoutKernels() {
  static constexpr DropoutKernels kKernels = {
      .draw = Draw, .apply = Apply, .widen = Widen};
  return kKernels;
}

}  // namespace syncline
