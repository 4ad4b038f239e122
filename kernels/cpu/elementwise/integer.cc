#include <algorithm>
#include <limits>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/report.h"
#include "kernels/device/integer_kernels.h"
#include "kernels/elementwise/broadcast.h"

namespace syncline {
namespace {

using Walk = Strided<1>;

template <typename T>
void Spread(Stream& stream, const Walk& walk, const void* from, void* to) {
  const CpuKernel kernel(stream);
  const T* const x = static_cast<const T*>(from);
  T* const y = static_cast<T*>(to);
  const int64_t n = walk.inner();
  const int64_t by = walk.inner_strides()[0];
  walk.ForEachRow([=](int64_t o, const Walk::Offsets& at) {
    for (int64_t i = 0; i < n; ++i) y[o + i] = x[at[0] + i * by];
  });
}

template <typename F, typename T>
void Combine(Stream& stream, const Walk& walk, const void* operands,
             void* result, const ErrorSlot& errors) {
  const CpuKernel kernel(stream);
  const T* const x = static_cast<const T*>(operands);
  T* const y = static_cast<T*>(result);
  const int64_t n = walk.inner();
  const int64_t by = walk.inner_strides()[0];
  [[maybe_unused]] bool has_reported = false;  // the rest lies behind it
  walk.ForEachRow([&, x, y](int64_t o, const Walk::Offsets& at) {
    for (int64_t i = 0; i < n; ++i) {
      const T operand = x[at[0] + i * by];
      if constexpr (requires { F::kError; }) {
        if (!F::HasResult(operand)) {
          if (!has_reported) {
            Report(errors, static_cast<int32_t>(F::kError), o + i, operand);
          }
          has_reported = true;
          continue;
        }
      }
      y[o + i] = F::Value(y[o + i], operand);
    }
  });
}

template <typename F, typename T>
void Reduce(Stream& stream, const Broadcast& s, const void* from, void* to) {
  const CpuKernel kernel(stream);
  const T* const x = static_cast<const T*>(from);
  T* const y = static_cast<T*>(to);
  std::fill_n(y, s.b_count, F::template Neutral<T>());
  ForEachRow(s, [&](auto, auto sb, int64_t, int64_t a, int64_t b) {
    for (int64_t i = 0; i < s.inner; ++i) {
      T& result = y[b + i * sb];
      result = F::Value(result, x[a + i]);
    }
  });
}

template <typename F, typename T>
void Unary(Stream& stream, int64_t n, const void* from, void* to) {
  const CpuKernel kernel(stream);
  const T* const x = static_cast<const T*>(from);
  T* const y = static_cast<T*>(to);
  for (int64_t i = 0; i < n; ++i) y[i] = F::Value(x[i]);
}

template <typename T>
T BoundOr(const void* bound, T none) {
  return bound == nullptr ? none : *static_cast<const T*>(bound);
}

template <typename T>
void Clip(Stream& stream, int64_t n, const void* from, const void* low_bound,
          const void* high_bound, void* to) {
  const CpuKernel kernel(stream);
  const T low = BoundOr(low_bound, std::numeric_limits<T>::lowest());
  const T high = BoundOr(high_bound, std::numeric_limits<T>::max());
  const T* const x = static_cast<const T*>(from);
  T* const y = static_cast<T*>(to);
  for (int64_t i = 0; i < n; ++i) y[i] = std::min(std::max(x[i], low), high);
}

template <typename Kernel>
constexpr ByDType<Kernel> OfIntegers(Kernel int32, Kernel int64, Kernel byte) {
  return {.int32 = int32, .int64 = int64, .boolean = byte, .uint8 = byte};
}

template <typename F>
constexpr ByDType<IntegerKernels::Combine> CombinationsOf() {
  return OfIntegers<IntegerKernels::Combine>(
      Combine<F, int32_t>, Combine<F, int64_t>, Combine<F, uint8_t>);
}

template <typename F>
constexpr ByDType<IntegerKernels::Reduce> ReductionsOf() {
  if constexpr (requires { F::template Neutral<int32_t>(); }) {
    return OfIntegers<IntegerKernels::Reduce>(
        Reduce<F, int32_t>, Reduce<F, int64_t>, Reduce<F, uint8_t>);
  } else {
    return {};
  }
}

template <typename F>
constexpr ByDType<IntegerKernels::Unary> UnaryOf() {
  return OfIntegers<IntegerKernels::Unary>(Unary<F, int32_t>, Unary<F, int64_t>,
                                           Unary<F, uint8_t>);
}

}  // namespace

const IntegerKernels& CpuIntegerKernels() {
  static constexpr IntegerKernels kKernels = {
      .spread = OfIntegers<IntegerKernels::Spread>(
          Spread<int32_t>, Spread<int64_t>, Spread<uint8_t>),
#define SYNCLINE_COMBINATIONS_OF(name) CombinationsOf<integer::name>(),
      .combinations = {SYNCLINE_INTEGER_FUNCTIONS(SYNCLINE_COMBINATIONS_OF)},
#undef SYNCLINE_COMBINATIONS_OF
#define SYNCLINE_REDUCTIONS_OF(name) ReductionsOf<integer::name>(),
      .reductions = {SYNCLINE_INTEGER_FUNCTIONS(SYNCLINE_REDUCTIONS_OF)},
#undef SYNCLINE_REDUCTIONS_OF
#define SYNCLINE_UNARY_OF(name) UnaryOf<integer::name>(),
      .unary = {SYNCLINE_INTEGER_UNARY_FUNCTIONS(SYNCLINE_UNARY_OF)},
#undef SYNCLINE_UNARY_OF
      .clip = OfIntegers<IntegerKernels::Clip>(Clip<int32_t>, Clip<int64_t>,
                                               Clip<uint8_t>)};
  return kKernels;
}

}  // namespace syncline
