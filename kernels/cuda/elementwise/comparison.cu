#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/walk/strided_walk.h"
#include "kernels/device/comparison_kernels.h"

namespace syncline {
namespace {

using cuda::Global;
using cuda::OnDevice;

template <typename F, typename T>
struct CompareElement {
  Global<const T> a;
  Global<const T> b;
  Global<uint8_t> y;

  SYNCLINE_DEVICE void operator()(int64_t i,
                                  const Strided<2>::Offsets& at) const {
    const T p = a[at[0]];
    const T q = b[at[1]];
    y[i] = F::Value(p, q);
  }
};

template <typename F, typename T>
void Compare(Stream& stream, const Strided<2>& walk, const void* a,
             const void* b, uint8_t* y) {
  cuda::LaunchStrided(
      stream, walk,
      CompareElement<F, T>{OnDevice(static_cast<const T*>(a)),
                           OnDevice(static_cast<const T*>(b)), OnDevice(y)});
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
  cuda::LaunchElements(
      stream, n, [x = OnDevice(x), y = OnDevice(y)] SYNCLINE_DEVICE(int64_t i) {
        y[i] = x[i] == 0;
      });
}

}  // namespace

const ComparisonKernels& CudaComparisonKernels() {
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
