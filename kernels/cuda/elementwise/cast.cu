#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/elementwise/narrow_floats.h"
#include "kernels/cuda/launch.h"
#include "kernels/device/cast_kernels.h"
#include "kernels/elementwise/conversion.h"

namespace syncline {
namespace {

using cuda::Bfloat16;
using cuda::Float16;
using cuda::Global;
using cuda::OnDevice;

template <typename From, typename To>
struct CastElement {
  Global<const From> x;
  Global<To> y;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    const From value = x[i];
    y[i] = ConvertTo<To>(value);
  }
};

template <typename From, typename To>
void Forward(Stream& stream, int64_t n, const void* x, void* y) {
  cuda::LaunchElements(
      stream, n,
      CastElement<From, To>{OnDevice(static_cast<const From*>(x)),
                            OnDevice(static_cast<To*>(y))});
}

template <typename To>
void FromFloat(Stream& stream, int64_t n, const void* x, void* y) {
  cuda::LaunchElements(
      stream, n,
      [x = OnDevice(static_cast<const float*>(x)),
       y = OnDevice(static_cast<uint16_t*>(y))] SYNCLINE_DEVICE(int64_t i) {
        y[i] = To::Narrow(x[i]);
      });
}

template <typename From>
void ToFloat(Stream& stream, int64_t n, const void* x, void* y) {
  cuda::LaunchElements(
      stream, n,
      [x = OnDevice(static_cast<const uint16_t*>(x)),
       y = OnDevice(static_cast<float*>(y))] SYNCLINE_DEVICE(int64_t i) {
        y[i] = From::Widen(x[i]);
      });
}

void Backward(Stream& stream, int64_t n, ConstFloats dy, bool accumulate,
              Floats dx) {
  cuda::LaunchElements(stream, n,
                       [accumulate, dy = OnDevice(dy),
                        dx = OnDevice(dx)] SYNCLINE_DEVICE(int64_t i) {
                         const float d = dy[i];
                         dx[i] = accumulate ? dx[i] + d : d;
                       });
}

template <typename From>
constexpr ByDType<CastKernels::Forward> KernelsFrom() {
  return {.float32 = Forward<From, float>,
          .float64 = Forward<From, double>,
          .int32 = Forward<From, int32_t>,
          .int64 = Forward<From, int64_t>,
          .boolean = Forward<From, bool>,
          .uint8 = Forward<From, uint8_t>};
}

constexpr ByDType<CastKernels::Forward> KernelsFromFloat() {
  ByDType<CastKernels::Forward> kernels = KernelsFrom<float>();
  kernels.bfloat16 = FromFloat<Bfloat16>;
  kernels.float16 = FromFloat<Float16>;
  return kernels;
}

}  // namespace

const CastKernels& CudaCastKernels() {
  static constexpr CastKernels kKernels = {
      .casts = {.float32 = KernelsFromFloat(),
                .float64 = KernelsFrom<double>(),
                .int32 = KernelsFrom<int32_t>(),
                .int64 = KernelsFrom<int64_t>(),
                .boolean = KernelsFrom<bool>(),
                .uint8 = KernelsFrom<uint8_t>(),
                .bfloat16 = {.float32 = ToFloat<Bfloat16>},
                .float16 = {.float32 = ToFloat<Float16>}},
      .backward = Backward};
  return kKernels;
}

}  // namespace syncline
