#ifndef SYNCLINE_KERNELS_ELEMENTWISE_INTEGER_FUNCTIONS_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_INTEGER_FUNCTIONS_H_

// Arithmetic on integers: lists from which the compiler of each device makes
// its kernels. Exact; a result that its type does not have wraps around, as in
// PyTorch and ONNX Runtime.
//
// A function of two is a struct with Value(a, b), and
//   HasResult(b), kError    where some second operands have none
//   Neutral()               where it can reduce an array: of nothing

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/elementwise/host_device.h"

namespace syncline {

// Why a function has no result: the kind of a DataError.
enum class IntegerError : int32_t { kDivisionByZero, kNegativePower };

namespace integer {

// An unsigned type at least as wide as int, which wraps around where a signed
// one may not.
template <typename T>
using Wide =
    std::conditional_t<(sizeof(T) < sizeof(int)), unsigned,
                       std::make_unsigned_t<std::common_type_t<T, int>>>;

template <typename T>
SYNCLINE_HOST_DEVICE inline T Negated(T x) {
  return static_cast<T>(-static_cast<Wide<T>>(x));
}

struct Add {
  template <typename T>
  SYNCLINE_HOST_DEVICE static T Value(T a, T b) {
    return static_cast<T>(static_cast<Wide<T>>(a) + static_cast<Wide<T>>(b));
  }
  template <typename T>
  SYNCLINE_HOST_DEVICE static constexpr T Neutral() {
    return 0;
  }
};

// Towards 0. The quotient of the least number and -1 wraps around.
struct Divide {
  static constexpr IntegerError kError = IntegerError::kDivisionByZero;
  template <typename T>
  SYNCLINE_HOST_DEVICE static bool HasResult(T b) {
    return b != 0;
  }
  template <typename T>
  SYNCLINE_HOST_DEVICE static T Value(T a, T b) {
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return Negated(a);
    }
    return static_cast<T>(a / b);
  }
};

struct Max {
  template <typename T>
  SYNCLINE_HOST_DEVICE static T Value(T a, T b) {
    return a < b ? b : a;
  }
  template <typename T>
  SYNCLINE_HOST_DEVICE static constexpr T Neutral() {
    return std::numeric_limits<T>::lowest();
  }
};

struct Min {
  template <typename T>
  SYNCLINE_HOST_DEVICE static T Value(T a, T b) {
    return b < a ? b : a;
  }
  template <typename T>
  SYNCLINE_HOST_DEVICE static constexpr T Neutral() {
    return std::numeric_limits<T>::max();
  }
};

// Of the dividend's sign.
struct Remainder {
  static constexpr IntegerError kError = IntegerError::kDivisionByZero;
  template <typename T>
  SYNCLINE_HOST_DEVICE static bool HasResult(T b) {
    return b != 0;
  }
  template <typename T>
  SYNCLINE_HOST_DEVICE static T Value(T a, T b) {
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return 0;
    }
    return static_cast<T>(a % b);
  }
};

// Of the divisor's sign.
struct Modulo {
  static constexpr IntegerError kError = IntegerError::kDivisionByZero;
  template <typename T>
  SYNCLINE_HOST_DEVICE static bool HasResult(T b) {
    return b != 0;
  }
  template <typename T>
  SYNCLINE_HOST_DEVICE static T Value(T a, T b) {
    const T rest = Remainder::Value(a, b);
    const bool other_sign = rest != 0 && (rest < 0) != (b < 0);
    return static_cast<T>(other_sign ? rest + b : rest);
  }
};

struct Multiply {
  template <typename T>
  SYNCLINE_HOST_DEVICE static T Value(T a, T b) {
    return static_cast<T>(static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b));
  }
  template <typename T>
  SYNCLINE_HOST_DEVICE static constexpr T Neutral() {
    return 1;
  }
};

struct Power {
  static constexpr IntegerError kError = IntegerError::kNegativePower;
  template <typename T>
  SYNCLINE_HOST_DEVICE static bool HasResult(T b) {
    return b >= 0;
  }
  template <typename T>
  SYNCLINE_HOST_DEVICE static T Value(T a, T b) {
    Wide<T> result = 1;
    for (Wide<T> factor = static_cast<Wide<T>>(a); b != 0;
         b = static_cast<T>(b / 2)) {
      if (b % 2 != 0) result *= factor;
      factor *= factor;
    }
    return static_cast<T>(result);
  }
};

struct Subtract {
  template <typename T>
  SYNCLINE_HOST_DEVICE static T Value(T a, T b) {
    return static_cast<T>(static_cast<Wide<T>>(a) - static_cast<Wide<T>>(b));
  }
};

// Of one number.
struct Magnitude {
  template <typename T>
  SYNCLINE_HOST_DEVICE static T Value(T x) {
    return x < 0 ? Negated(x) : x;
  }
};

struct Negate {
  template <typename T>
  SYNCLINE_HOST_DEVICE static T Value(T x) {
    return Negated(x);
  }
};

struct Sign {
  template <typename T>
  SYNCLINE_HOST_DEVICE static T Value(T x) {
    return static_cast<T>((x > 0) - (x < 0));
  }
};

}  // namespace integer

#define SYNCLINE_INTEGER_FUNCTIONS(FUNCTION) \
  FUNCTION(Add)                              \
  FUNCTION(Divide)                           \
  FUNCTION(Max)                              \
  FUNCTION(Min)                              \
  FUNCTION(Modulo)                           \
  FUNCTION(Multiply)                         \
  FUNCTION(Power)                            \
  FUNCTION(Remainder)                        \
  FUNCTION(Subtract)
#define SYNCLINE_INTEGER_UNARY_FUNCTIONS(FUNCTION) \
  FUNCTION(Magnitude)                              \
  FUNCTION(Negate)                                 \
  FUNCTION(Sign)

enum class IntegerFunction {
#define SYNCLINE_NAME_FUNCTION(name) k##name,
  SYNCLINE_INTEGER_FUNCTIONS(SYNCLINE_NAME_FUNCTION)
#undef SYNCLINE_NAME_FUNCTION
};
enum class IntegerUnary {
#define SYNCLINE_NAME_FUNCTION(name) k##name,
  SYNCLINE_INTEGER_UNARY_FUNCTIONS(SYNCLINE_NAME_FUNCTION)
#undef SYNCLINE_NAME_FUNCTION
};
#define SYNCLINE_COUNT_FUNCTION(name) +1
inline constexpr size_t kIntegerFunctions =
    0 SYNCLINE_INTEGER_FUNCTIONS(SYNCLINE_COUNT_FUNCTION);
inline constexpr size_t kIntegerUnaryFunctions =
    0 SYNCLINE_INTEGER_UNARY_FUNCTIONS(SYNCLINE_COUNT_FUNCTION);
#undef SYNCLINE_COUNT_FUNCTION

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_INTEGER_FUNCTIONS_H_
