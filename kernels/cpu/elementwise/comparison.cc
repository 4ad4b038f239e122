#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/device/comparison_kernels.h"

namespace syncline {
namespace {

template <typename F, typename T>
void Compare(Stream& stream, const Strided<2>& walk, const void* a,
             const void* b, uint8_t* y) {
  const CpuKernel kernel(stream);
  const T* const p = static_cast<const T*>(a);
  const T* const q = static_cast<const T*>(b);
  const int64_t n = walk.inner();
  const int64_t by_p = walk.inner_strides()[0];
  const int64_t by_q = walk.inner_strides()[1];
  walk.ForEachRow([=](int64_t o, const Strided<2>::Offsets& at) {
    for (int64_t i = 0; i < n; ++i) {
      y[o + i] = F::Value(p[at[0] + i * by_p], q[at[1] + i * by_q]);
    }
  });
}

template <typename F>
constexpr ByDType<ComparisonKernels::Compare> KernelsOf() {
  return {.float32 = Compare<F, float>,
          .float64 = Compare<F, double>,
          .int32 = Compare<F, int32_t>,
          .int64 = Compare<F, int64_t>,
          .boolean = Compare<F, uint8_t>,
          .uint8 = Compare<F, uint8_t>};
}

void LogicalNot(Stream& stream, int64_t n, const uint8_t* x, uint8_t* y) {
  const CpuKernel kernel(stream);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] == 0;
}

}  // namespace

const ComparisonKernels& CpuComparisonKernels() {
  static constexpr ComparisonKernels kKernels = {
      .functions =
          {
#define SYNCLINE_KERNELS_OF(name) KernelsOf<comparison::name>(),
              SYNCLINE_COMPARISON_FUNCTIONS(SYNCLINE_KERNELS_OF)
#undef SYNCLINE_KERNELS_OF
          },
      .logical_not = LogicalNot};
  return kKernels;
}

}  // namespace syncline
