#include <cmath>
#include <limits>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/device/float_class_kernels.h"

namespace syncline {
namespace {

template <typename T>
void IsInfinity(Stream& stream, const FloatClassKernels::Infinities& which,
                int64_t n, const void* x, uint8_t* y) {
  const CpuKernel kernel(stream);
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  const auto [positive, negative] = which;
  const T* const values = static_cast<const T*>(x);
  for (int64_t i = 0; i < n; ++i) {
    y[i] = (positive && values[i] == kInfinity) ||
           (negative && values[i] == -kInfinity);
  }
}

template <typename T>
void IsNan(Stream& stream, int64_t n, const void* x, uint8_t* y) {
  const CpuKernel kernel(stream);
  const T* const values = static_cast<const T*>(x);
  for (int64_t i = 0; i < n; ++i) y[i] = std::isnan(values[i]);
}

}  // namespace

const FloatClassKernels& CpuFloatClassKernels() {
  static constexpr FloatClassKernels kKernels = {
      .is_infinity = {.float32 = IsInfinity<float>,
                      .float64 = IsInfinity<double>},
      .is_nan = {.float32 = IsNan<float>, .float64 = IsNan<double>}};
  return kKernels;
}

}  // namespace syncline
