#include <type_traits>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/device/cumulative_sum_kernels.h"

namespace syncline {
namespace {

using cuda::Global;
using cuda::OnDevice;

// A thread goes along a line alone.
template <typename T>
struct SumLine {
  CumulativeSumShape s;
  bool reverse;
  bool accumulate;
  Global<const T> x;
  Global<T> y;

  SYNCLINE_DEVICE void operator()(int64_t line) const {
    std::conditional_t<std::is_same_v<T, float>, double, T> sum = 0;
    const int64_t begin = line / s.inner * s.n * s.inner + line % s.inner;
    for (int64_t k = 0; k < s.n; ++k) {
      const int64_t at = begin + (reverse ? s.n - 1 - k : k) * s.inner;
      const T value = x[at];
      const T result = static_cast<T>(s.exclusive ? sum : sum + value);
      sum += value;
      y[at] = accumulate ? static_cast<T>(y[at] + result) : result;
    }
  }
};

template <typename T>
void SumAlong(Stream& stream, const CumulativeSumShape& s, bool reverse,
              const void* x, bool accumulate, void* y) {
  cuda::LaunchElements(
      stream, s.n == 0 ? 0 : s.outer * s.inner,
      SumLine<T>{s, reverse, accumulate, OnDevice(static_cast<const T*>(x)),
                 OnDevice(static_cast<T*>(y))});
}

void Forward(Stream& stream, const CumulativeSumShape& s, DType dtype,
             const void* x, void* y) {
  constexpr bool kAdds = false;
  switch (dtype) {
    case DType::kFloat64:
      return SumAlong<double>(stream, s, s.reverse, x, kAdds, y);
    case DType::kInt32:  // wraps around
      return SumAlong<uint32_t>(stream, s, s.reverse, x, kAdds, y);
    case DType::kInt64:
      return SumAlong<uint64_t>(stream, s, s.reverse, x, kAdds, y);
    default:
      return SumAlong<float>(stream, s, s.reverse, x, kAdds, y);
  }
}

void Backward(Stream& stream, const CumulativeSumShape& s, const float* dy,
              bool accumulate, float* dx) {
  SumAlong<float>(stream, s, !s.reverse, dy, accumulate, dx);
}

}  // namespace

const CumulativeSumKernels& CudaCumulativeSumKernels() {
  static constexpr CumulativeSumKernels kKernels = {.forward = Forward,
                                                    .backward = Backward};
  return kKernels;
}

}  // namespace syncline
