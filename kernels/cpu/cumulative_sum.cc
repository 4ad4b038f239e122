#include <type_traits>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/device/cumulative_sum_kernels.h"

namespace syncline {
namespace {

// y along n, in order of the sums; += with `accumulate`.
template <typename T>
void SumAlong(const CumulativeSumShape& s, bool reverse, const T* x,
              bool accumulate, T* y) {
  for (int64_t o = 0; o < s.outer; ++o) {
    for (int64_t i = 0; i < s.inner; ++i) {
      std::conditional_t<std::is_same_v<T, float>, double, T> sum = 0;
      for (int64_t k = 0; k < s.n; ++k) {
        const int64_t at =
            (o * s.n + (reverse ? s.n - 1 - k : k)) * s.inner + i;
        const T value = x[at];
        const T result = static_cast<T>(s.exclusive ? sum : sum + value);
        sum += value;
        y[at] = accumulate ? y[at] + result : result;
      }
    }
  }
}

template <typename T>
void ForwardOf(const CumulativeSumShape& s, const void* x, void* y) {
  SumAlong(s, s.reverse, static_cast<const T*>(x), /*accumulate=*/false,
           static_cast<T*>(y));
}

void Forward(Stream& stream, const CumulativeSumShape& s, DType dtype,
             const void* x, void* y) {
  const CpuKernel kernel(stream);
  switch (dtype) {
    case DType::kFloat64:
      return ForwardOf<double>(s, x, y);
    case DType::kInt32:
      return ForwardOf<uint32_t>(s, x, y);  // wraps around
    case DType::kInt64:
      return ForwardOf<uint64_t>(s, x, y);
    default:
      return ForwardOf<float>(s, x, y);
  }
}

void Backward(Stream& stream, const CumulativeSumShape& s, const float* dy,
              bool accumulate, float* dx) {
  const CpuKernel kernel(stream);
  SumAlong(s, !s.reverse, dy, accumulate, dx);
}

}  // namespace

const CumulativeSumKernels& CpuCumulativeSumKernels() {
  static constexpr CumulativeSumKernels kKernels = {.forward = Forward,
                                                    .backward = Backward};
  return kKernels;
}

}  // namespace syncline
