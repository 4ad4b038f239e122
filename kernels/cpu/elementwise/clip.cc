#include <limits>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/on_float32.h"
#include "kernels/device/clip_kernels.h"
#include "kernels/elementwise/loop.h"

namespace syncline {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float BoundOr(const float* bound, float none) {
  return bound == nullptr ? none : *bound;
}

void Forward(Stream& stream, int64_t n, const float* x, const float* low_bound,
             const float* high_bound, float* y) {
  const CpuKernel kernel(stream);
  const float low = BoundOr(low_bound, -kInfinity);
  const float high = BoundOr(high_bound, kInfinity);
  Emit(n, /*accumulate=*/false, y, [=](int64_t i) {
    const float raised = x[i] < low ? low : x[i];
    return raised > high ? high : raised;
  });
}

void Backward(Stream& stream, int64_t n, const float* x, const float* low_bound,
              const float* high_bound, const float* dy, bool accumulate,
              float* dx) {
  const CpuKernel kernel(stream);
  const float low = BoundOr(low_bound, -kInfinity);
  const float high = BoundOr(high_bound, kInfinity);
  Emit(n, accumulate, dx,
       [=](int64_t i) { return x[i] < low || x[i] > high ? 0.0f : dy[i]; });
}

}  // namespace

const ClipKernels& CpuClipKernels() {
  static constexpr ClipKernels kKernels = {.forward = OnFloat32<Forward>,
                                           .backward = OnFloat32<Backward>};
  return kKernels;
}

}  // namespace syncline
