#include "common/base/element_type.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/on_float32.h"
#include "kernels/device/cast_kernels.h"
#include "kernels/elementwise/conversion.h"
#include "kernels/elementwise/loop.h"

namespace syncline {
namespace {

template <typename From, typename To>
void Forward(Stream& stream, int64_t n, const void* from, void* to) {
  const CpuKernel kernel(stream);
  const From* const x = static_cast<const From*>(from);
  To* const y = static_cast<To*>(to);
  for (int64_t i = 0; i < n; ++i) y[i] = ConvertTo<To>(x[i]);
}

template <ElementType type>
void FromFloat(Stream& stream, int64_t n, const void* x, void* y) {
  const CpuKernel kernel(stream);
  Narrow(type, static_cast<const float*>(x), y, static_cast<size_t>(n));
}

template <ElementType type>
void ToFloat(Stream& stream, int64_t n, const void* x, void* y) {
  const CpuKernel kernel(stream);
  Widen(type, x, static_cast<float*>(y), static_cast<size_t>(n));
}

void Backward(Stream& stream, int64_t n, const float* dy, bool accumulate,
              float* dx) {
  const CpuKernel kernel(stream);
  Emit(n, accumulate, dx, [=](int64_t i) { return dy[i]; });
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
  kernels.bfloat16 = FromFloat<ElementType::kBfloat16>;
  kernels.float16 = FromFloat<ElementType::kFloat16>;
  return kernels;
}

}  // namespace

const CastKernels& CpuCastKernels() {
  static constexpr CastKernels kKernels = {
      .casts = {.float32 = KernelsFromFloat(),
                .float64 = KernelsFrom<double>(),
                .int32 = KernelsFrom<int32_t>(),
                .int64 = KernelsFrom<int64_t>(),
                .boolean = KernelsFrom<bool>(),
                .uint8 = KernelsFrom<uint8_t>(),
                .bfloat16 = {.float32 = ToFloat<ElementType::kBfloat16>},
                .float16 = {.float32 = ToFloat<ElementType::kFloat16>}},
      .backward = OnFloat32<Backward>};
  return kKernels;
}

}  // namespace syncline
