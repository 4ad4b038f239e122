#include "worker/ops/elementwise/integers.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/elementwise/broadcast.h"
#include "kernels/elementwise/strided.h"
#include "worker/ops/reduction_shape.h"
#include "worker/ops/without_gradient.h"

namespace syncline::worker {
namespace {

// Calls make(T()) with the element type T of `dtype`. REQUIRES: IsInteger.
template <typename Make>
absl::StatusOr<std::unique_ptr<Op>> ForType(DType dtype, Make make) {
  switch (dtype) {
    case DType::kInt32:
      return make(int32_t());
    case DType::kInt64:
      return make(int64_t());
    default:
      return make(uint8_t());
  }
}

// Through an unsigned type at least as wide as int, which wraps around where a
// signed one may not.
template <typename T>
using Wide =
    std::conditional_t<(sizeof(T) < sizeof(int)), unsigned,
                       std::make_unsigned_t<std::common_type_t<T, int>>>;

template <typename T>
T Power(T base, T exponent) {
  Wide<T> result = 1;
  for (Wide<T> factor = static_cast<Wide<T>>(base); exponent != 0;
       exponent = static_cast<T>(exponent / 2)) {
    if (exponent % 2 != 0) result *= factor;
    factor *= factor;
  }
  return static_cast<T>(result);
}

// REQUIRES: b is not 0. The quotient of the least number and -1 wraps around.
template <typename T>
T Divided(T a, T b) {
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return static_cast<T>(-static_cast<Wide<T>>(a));
  }
  return static_cast<T>(a / b);
}
template <typename T>
T Remainder(T a, T b) {
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return 0;
  }
  return static_cast<T>(a % b);
}

template <IntegerFunction kFunction, typename T>
T Apply(T a, T b) {
  const Wide<T> p = static_cast<Wide<T>>(a);
  const Wide<T> q = static_cast<Wide<T>>(b);
  switch (kFunction) {
    case IntegerFunction::kAdd:
      return static_cast<T>(p + q);
    case IntegerFunction::kSubtract:
      return static_cast<T>(p - q);
    case IntegerFunction::kMultiply:
      return static_cast<T>(p * q);
    case IntegerFunction::kDivide:
      return Divided(a, b);
    case IntegerFunction::kModulo: {
      const T rest = Remainder(a, b);
      const bool other_sign = rest != 0 && (rest < 0) != (b < 0);
      return static_cast<T>(other_sign ? rest + b : rest);
    }
    case IntegerFunction::kRemainder:
      return Remainder(a, b);
    case IntegerFunction::kPower:
      return Power(a, b);
    case IntegerFunction::kMax:
      return std::max(a, b);
    case IntegerFunction::kMin:
      return std::min(a, b);
  }
  return a;
}

// True if the function has no result for some second operands.
constexpr bool IsPartial(IntegerFunction function) {
  return function == IntegerFunction::kDivide ||
         function == IntegerFunction::kModulo ||
         function == IntegerFunction::kRemainder ||
         function == IntegerFunction::kPower;
}

template <IntegerFunction kFunction, typename T>
bool HasNoResult(T b) {
  return kFunction == IntegerFunction::kPower ? b < 0 : b == 0;
}

absl::Status NoResult(IntegerFunction function, int64_t element) {
  return absl::InvalidArgumentError(
      absl::StrCat("element ", element,
                   function == IntegerFunction::kPower
                       ? ": an integer is raised to a negative power"
                       : ": an integer is divided by 0"));
}

// Calls run(constant of `function`).
template <typename Run>
auto ForFunction(IntegerFunction function, Run run) {
  using F = IntegerFunction;
  switch (function) {
    case F::kAdd:
      return run(std::integral_constant<F, F::kAdd>());
    case F::kSubtract:
      return run(std::integral_constant<F, F::kSubtract>());
    case F::kMultiply:
      return run(std::integral_constant<F, F::kMultiply>());
    case F::kDivide:
      return run(std::integral_constant<F, F::kDivide>());
    case F::kModulo:
      return run(std::integral_constant<F, F::kModulo>());
    case F::kRemainder:
      return run(std::integral_constant<F, F::kRemainder>());
    case F::kPower:
      return run(std::integral_constant<F, F::kPower>());
    case F::kMax:
      return run(std::integral_constant<F, F::kMax>());
    case F::kMin:
      break;
  }
  return run(std::integral_constant<F, F::kMin>());
}

using Walk = Strided<1>;

// y = x, repeated.
template <typename T>
void Spread(const Walk& walk, const T* x, T* y) {
  const int64_t n = walk.inner();
  const int64_t by = walk.inner_strides()[0];
  walk.ForEachRow([=](int64_t o, const Walk::Offsets& at) {
    for (int64_t i = 0; i < n; ++i) y[o + i] = x[at[0] + i * by];
  });
}

// y = f(y, x), with x repeated.
template <IntegerFunction kFunction, typename T>
absl::Status Combine(const Walk& walk, const T* x, T* y) {
  const int64_t n = walk.inner();
  const int64_t by = walk.inner_strides()[0];
  int64_t bad = -1;
  walk.ForEachRow([&, x, y](int64_t o, const Walk::Offsets& at) {
    for (int64_t i = 0; i < n; ++i) {
      const T operand = x[at[0] + i * by];
      if constexpr (IsPartial(kFunction)) {
        if (HasNoResult<kFunction>(operand)) {
          if (bad < 0) bad = o + i;
          continue;
        }
      }
      y[o + i] = Apply<kFunction>(y[o + i], operand);
    }
  });
  return bad < 0 ? absl::OkStatus() : NoResult(kFunction, bad);
}

template <IntegerFunction kFunction, typename T>
std::unique_ptr<Op> MakeArithmeticOf(std::vector<Walk> walks) {
  return MakeOpWithoutGradient(
      [walks = std::move(walks)](const Op::Tensors& t) -> absl::Status {
        T* const y = static_cast<T*>(t.outputs[0]);
        Spread(walks[0], static_cast<const T*>(t.inputs[0]), y);
        for (size_t i = 1; i < walks.size(); ++i) {
          SYNCLINE_RETURN_IF_ERROR((Combine<kFunction, T>(
              walks[i], static_cast<const T*>(t.inputs[i]), y)));
        }
        return absl::OkStatus();
      });
}

template <IntegerFunction kFunction, typename T>
T Neutral() {
  switch (kFunction) {
    case IntegerFunction::kMultiply:
      return 1;
    case IntegerFunction::kMax:
      return std::numeric_limits<T>::lowest();
    case IntegerFunction::kMin:
      return std::numeric_limits<T>::max();
    default:
      return 0;
  }
}

template <IntegerFunction kFunction, typename T>
std::unique_ptr<Op> MakeReductionOf(Broadcast shape) {
  return MakeOpWithoutGradient(
      [shape = std::move(shape)](const Op::Tensors& t) {
        const T* const x = static_cast<const T*>(t.inputs[0]);
        T* const y = static_cast<T*>(t.outputs[0]);
        std::fill_n(y, shape.b_count, Neutral<kFunction, T>());
        ForEachRow(shape, [&](auto, auto sb, int64_t, int64_t a, int64_t b) {
          for (int64_t i = 0; i < shape.inner; ++i) {
            T& result = y[b + i * sb];
            result = Apply<kFunction>(result, x[a + i]);
          }
        });
        return absl::OkStatus();
      });
}

template <typename T>
T ApplyUnary(IntegerUnary function, T x) {
  switch (function) {
    case IntegerUnary::kNegate:
      return static_cast<T>(-static_cast<Wide<T>>(x));
    case IntegerUnary::kMagnitude:
      return x < 0 ? static_cast<T>(-static_cast<Wide<T>>(x)) : x;
    case IntegerUnary::kSign:
      return static_cast<T>((x > 0) - (x < 0));
  }
  return x;
}

absl::Status RequireOneIntegerType(const OpSpec& spec) {
  const DType first = spec.input(0).dtype;
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    const TensorType& input = spec.input(i);
    if (!input.present || (input.dtype == first && IsInteger(first))) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("inputs 0 and ", i, " are ", DTypeName(first), " and ",
                     DTypeName(input.dtype),
                     "; they must be of one integer "
                     "type"));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsInteger(DType dtype) {
  return dtype != DType::kFloat32 && dtype != DType::kFloat64;
}

absl::StatusOr<std::unique_ptr<Op>> MakeIntegerArithmetic(
    const OpSpec& spec, IntegerFunction function) {
  SYNCLINE_RETURN_IF_ERROR(RequireOneIntegerType(spec));
  Dims out = spec.input(0).dims;
  for (const TensorType& input : spec.inputs) {
    SYNCLINE_ASSIGN_OR_RETURN(out, BroadcastDims(out, input.dims));
  }
  std::vector<Walk> walks;
  for (const TensorType& input : spec.inputs) {
    walks.emplace_back(out,
                       std::array<Dims, 1>{BroadcastStrides(input.dims, out)});
  }
  return ForType(spec.input(0).dtype, [&](auto type) {
    return ForFunction(function, [&](auto constant) {
      return MakeArithmeticOf<constant(), decltype(type)>(std::move(walks));
    });
  });
}

absl::StatusOr<std::unique_ptr<Op>> MakeIntegerUnary(const OpSpec& spec,
                                                     IntegerUnary function) {
  SYNCLINE_RETURN_IF_ERROR(RequireOneIntegerType(spec));
  return ForType(spec.input(0).dtype, [&](auto type) {
    using T = decltype(type);
    return MakeOpWithoutGradient(
        [function, count = spec.input(0).count()](const Op::Tensors& t) {
          const T* const x = static_cast<const T*>(t.inputs[0]);
          T* const y = static_cast<T*>(t.outputs[0]);
          for (int64_t i = 0; i < count; ++i) y[i] = ApplyUnary(function, x[i]);
          return absl::OkStatus();
        });
  });
}

absl::StatusOr<std::unique_ptr<Op>> MakeIntegerReduction(
    const OpSpec& spec, IntegerFunction function) {
  SYNCLINE_ASSIGN_OR_RETURN(Broadcast shape, ReductionShapeOfAny(spec));
  return ForType(spec.input(0).dtype, [&](auto type) {
    return ForFunction(function, [&](auto constant) {
      return MakeReductionOf<constant(), decltype(type)>(std::move(shape));
    });
  });
}

absl::StatusOr<std::unique_ptr<Op>> MakeIntegerClip(const OpSpec& spec) {
  SYNCLINE_RETURN_IF_ERROR(RequireOneIntegerType(spec));
  return ForType(spec.input(0).dtype, [&](auto type) {
    using T = decltype(type);
    return MakeOpWithoutGradient(
        [count = spec.input(0).count()](const Op::Tensors& t) {
          const auto bound = [&](size_t i, T none) {
            const bool given = i < t.inputs.size() && t.inputs[i] != nullptr;
            return given ? *static_cast<const T*>(t.inputs[i]) : none;
          };
          const T low = bound(1, std::numeric_limits<T>::lowest());
          const T high = bound(2, std::numeric_limits<T>::max());
          const T* const x = static_cast<const T*>(t.inputs[0]);
          T* const y = static_cast<T*>(t.outputs[0]);
          for (int64_t i = 0; i < count; ++i) {
            y[i] = std::min(std::max(x[i], low), high);
          }
          return absl::OkStatus();
        });
  });
}

}  // namespace syncline::worker
