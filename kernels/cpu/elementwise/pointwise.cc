#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/on_float32.h"
#include "kernels/device/pointwise_kernels.h"
#include "kernels/elementwise/loop.h"
#include "kernels/threads.h"

namespace syncline {
namespace {

template <typename F>
void Forward(Stream& stream, const PointwiseSettings& settings, int64_t n,
             const float* x, float* y) {
  const CpuKernel kernel(stream);
  const F f = WithSettings<F>(settings);
  ParallelFor(n, kElementsPerThread, [=](int64_t begin, int64_t end) {
    Emit(end - begin, /*accumulate=*/false, y + begin,
         [f, x = x + begin](int64_t i) { return f.Value(x[i]); });
  });
}

template <typename F>
void Backward(Stream& stream, const PointwiseSettings& settings, int64_t n,
              const float* saved, const float* dy, bool accumulate, float* dx) {
  const CpuKernel kernel(stream);
  const F f = WithSettings<F>(settings);
  ParallelFor(n, kElementsPerThread, [=](int64_t begin, int64_t end) {
    if constexpr (GradientReadsOf<F>() == GradientReads::kNothing) {
      Emit(end - begin, accumulate, dx + begin,
           [f, dy = dy + begin](int64_t i) { return f.Gradient(0, dy[i]); });
    } else {
      Emit(end - begin, accumulate, dx + begin,
           [f, from = saved + begin, dy = dy + begin](int64_t i) {
             return GradientOf(f, from[i], dy[i]);
           });
    }
  });
}

template <typename F>
constexpr PointwiseKernels::Function KernelsOf() {
  if constexpr (GradientReadsOf<F>() == GradientReads::kNoGradient) {
    return {.forward = OnFloat32<Forward<F>>};
  } else {
    return {.forward = OnFloat32<Forward<F>>,
            .backward = OnFloat32<Backward<F>>};
  }
}

}  // namespace

const PointwiseKernels& CpuPointwiseKernels() {
  static constexpr PointwiseKernels kKernels = {
      .functions = {
#define SYNCLINE_KERNELS_OF(name) KernelsOf<pointwise::name>(),
          SYNCLINE_POINTWISE_FUNCTIONS(SYNCLINE_KERNELS_OF)
#undef SYNCLINE_KERNELS_OF
      }};
  return kKernels;
}

}  // namespace syncline
