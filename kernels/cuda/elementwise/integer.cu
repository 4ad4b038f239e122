#include <limits>
#include <type_traits>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/report.h"
#include "kernels/cuda/walk/broadcast_walk.h"
#include "kernels/cuda/walk/strided_walk.h"
#include "kernels/device/integer_kernels.h"

namespace syncline {
namespace {

using cuda::BroadcastPlace;
using cuda::Global;
using cuda::OnDevice;
using Walk = Strided<1>;

template <typename T>
void Spread(Stream& stream, const Walk& walk, const void* x, void* y) {
  cuda::LaunchStrided(
      stream, walk,
      [x = OnDevice(static_cast<const T*>(x)),
       y = OnDevice(static_cast<T*>(
           y))] SYNCLINE_DEVICE(int64_t i, const Walk::Offsets& at) {
        y[i] = x[at[0]];
      });
}

template <typename F, typename T>
struct CombineElement {
  Global<const T> x;
  Global<T> y;
  cuda::Reporter errors;

  SYNCLINE_DEVICE void operator()(int64_t i, const Walk::Offsets& at) const {
    const T operand = x[at[0]];
    if constexpr (requires { F::kError; }) {
      if (!F::HasResult(operand)) {
        errors.Report(static_cast<int32_t>(F::kError), i, operand);
        return;
      }
    }
    const T before = y[i];
    y[i] = F::Value(before, operand);
  }
};

template <typename F, typename T>
void Combine(Stream& stream, const Walk& walk, const void* x, void* y,
             const ErrorSlot& errors) {
  cuda::LaunchStrided(stream, walk,
                      CombineElement<F, T>{OnDevice(static_cast<const T*>(x)),
                                           OnDevice(static_cast<T*>(y)),
                                           cuda::OnDevice(errors)});
}

// Lanes exchange at least 4 bytes.
template <typename T>
using Exchanged = std::conditional_t<(sizeof(T) < 4), uint32_t, T>;

template <typename F, typename T>
struct FoldOf {
  SYNCLINE_DEVICE Exchanged<T> operator()(Exchanged<T> a,
                                          Exchanged<T> b) const {
    return F::Value(static_cast<T>(a), static_cast<T>(b));
  }
};

template <typename F, typename T>
void Reduce(Stream& stream, const Broadcast& s, const void* x, void* y) {
  cuda::FoldRepeated(
      stream, s, Side::kB, Exchanged<T>{F::template Neutral<T>()},
      [x = OnDevice(static_cast<const T*>(x))] SYNCLINE_DEVICE(
          const BroadcastPlace& at) -> Exchanged<T> { return x[at.a]; },
      FoldOf<F, T>(),
      [y = OnDevice(static_cast<T*>(y))] SYNCLINE_DEVICE(
          int64_t i, Exchanged<T> value) { y[i] = static_cast<T>(value); });
}

template <typename F, typename T>
void Unary(Stream& stream, int64_t n, const void* x, void* y) {
  cuda::LaunchElements(
      stream, n,
      [x = OnDevice(static_cast<const T*>(x)),
       y = OnDevice(static_cast<T*>(y))] SYNCLINE_DEVICE(int64_t i) {
        const T value = x[i];
        y[i] = F::Value(value);
      });
}

template <typename T>
void Clip(Stream& stream, int64_t n, const void* x, const void* low_bound,
          const void* high_bound, void* y) {
  const bool has_low = low_bound != nullptr;
  const bool has_high = high_bound != nullptr;
  cuda::LaunchElements(
      stream, n,
      [has_low, has_high,
       low_bound = OnDevice(static_cast<const T*>(low_bound)),
       high_bound = OnDevice(static_cast<const T*>(high_bound)),
       x = OnDevice(static_cast<const T*>(x)),
       y = OnDevice(static_cast<T*>(y))] SYNCLINE_DEVICE(int64_t i) {
        T low = std::numeric_limits<T>::lowest();
        T high = std::numeric_limits<T>::max();
        if (has_low) low = low_bound[0];
        if (has_high) high = high_bound[0];
        const T value = x[i];
        const T raised = value < low ? low : value;
        y[i] = raised > high ? high : raised;
      });
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

const IntegerKernels& CudaIntegerKernels() {
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
