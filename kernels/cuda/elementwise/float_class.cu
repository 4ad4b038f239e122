#include <cmath>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/device/float_class_kernels.h"

namespace syncline {
namespace {

using cuda::OnDevice;

template <typename T>
void IsInfinity(Stream& stream, const FloatClassKernels::Infinities& which,
                int64_t n, const void* x, uint8_t* y) {
  cuda::LaunchElements(stream, n,
                       [which, x = OnDevice(static_cast<const T*>(x)),
                        y = OnDevice(y)] SYNCLINE_DEVICE(int64_t i) {
                         constexpr T kInfinity = INFINITY;
                         const T value = x[i];
                         y[i] = (which.positive && value == kInfinity) ||
                                (which.negative && value == -kInfinity);
                       });
}

template <typename T>
void IsNan(Stream& stream, int64_t n, const void* x, uint8_t* y) {
  cuda::LaunchElements(stream, n,
                       [x = OnDevice(static_cast<const T*>(x)),
                        y = OnDevice(y)] SYNCLINE_DEVICE(int64_t i) {
                         const T value = x[i];
                         y[i] = value != value;
                       });
}

}  // namespace

const FloatClassKernels& CudaFloatClassKernels() {
  static constexpr FloatClassKernels kKernels = {
      .is_infinity = {.float32 = IsInfinity<float>,
                      .float64 = IsInfinity<double>},
      .is_nan = {.float32 = IsNan<float>, .float64 = IsNan<double>}};
  return kKernels;
}

}  // namespace syncline
