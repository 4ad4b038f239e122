#ifndef SYNCLINE_KERNELS_ELEMENTWISE_POINTWISE_FUNCTIONS_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_POINTWISE_FUNCTIONS_H_

// The functions of one number, and their gradients, as ONNX defines them: one
// list, from which the compiler of each device makes its kernels. NaN stays
// NaN. Where there is no derivative it is that of one side.
//
// A function is a struct with its settings as fields, Value(x), and one of
//   Derivative(x)           the gradient is dy times that
//   Gradient(saved, dy)     the gradient from what kReads says
// or neither where it is constant between its steps.

#include <cmath>
#include <cstddef>

#include "kernels/elementwise/host_device.h"
#include "kernels/elementwise/vector_math.h"

namespace syncline {

// The value that a gradient reads, besides dy.
enum class GradientReads { kInput, kOutput, kNothing, kNoGradient };

namespace pointwise {

struct Abs {
  SYNCLINE_HOST_DEVICE float Value(float x) const { return std::fabs(x); }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const {
    return x > 0 ? 1.0f : (x < 0 ? -1.0f : 0.0f * x);
  }
};

struct Acos {
  SYNCLINE_HOST_DEVICE float Value(float x) const { return std::acos(x); }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const {
    return -1.0f / std::sqrt((1.0f - x) * (1.0f + x));
  }
};

struct Acosh {
  SYNCLINE_HOST_DEVICE float Value(float x) const { return std::acosh(x); }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const {
    return 1.0f / (std::sqrt(x - 1.0f) * std::sqrt(x + 1.0f));
  }
};

struct Asin {
  SYNCLINE_HOST_DEVICE float Value(float x) const { return std::asin(x); }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const {
    return 1.0f / std::sqrt((1.0f - x) * (1.0f + x));
  }
};

struct Asinh {
  SYNCLINE_HOST_DEVICE float Value(float x) const { return std::asinh(x); }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const {
    return 1.0f / std::hypot(1.0f, x);
  }
};

struct Atan {
  SYNCLINE_HOST_DEVICE float Value(float x) const { return std::atan(x); }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const {
    return 1.0f / (1.0f + x * x);
  }
};

struct Atanh {
  SYNCLINE_HOST_DEVICE float Value(float x) const { return std::atanh(x); }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const {
    return 1.0f / ((1.0f - x) * (1.0f + x));
  }
};

struct Ceil {
  static constexpr GradientReads kReads = GradientReads::kNoGradient;
  SYNCLINE_HOST_DEVICE float Value(float x) const { return std::ceil(x); }
};

// Barron, 2017.
struct Celu {
  float alpha;
  SYNCLINE_HOST_DEVICE float Value(float x) const {
    return x < 0 ? alpha * ExpMinusOne(x / alpha) : x;
  }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const {
    return x < 0 ? syncline::Exp(x / alpha) : 1.0f;
  }
};

struct Cos {
  SYNCLINE_HOST_DEVICE float Value(float x) const { return std::cos(x); }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const { return -std::sin(x); }
};

struct Cosh {
  SYNCLINE_HOST_DEVICE float Value(float x) const { return std::cosh(x); }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const { return std::sinh(x); }
};

// Clevert et al., ICLR 2016.
struct Elu {
  float alpha;
  SYNCLINE_HOST_DEVICE float Value(float x) const {
    return x < 0 ? alpha * ExpMinusOne(x) : x;
  }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const {
    return x < 0 ? alpha * syncline::Exp(x) : 1.0f;
  }
};

struct Erf {
  SYNCLINE_HOST_DEVICE float Value(float x) const { return syncline::Erf(x); }
  SYNCLINE_HOST_DEVICE float Gradient(float x, float dy) const {
    constexpr float kTwoOverRootPi = 1.12837917f;
    return dy * kTwoOverRootPi * syncline::Exp(-x * x);
  }
};

struct Exp {
  static constexpr GradientReads kReads = GradientReads::kOutput;
  SYNCLINE_HOST_DEVICE float Value(float x) const { return syncline::Exp(x); }
  SYNCLINE_HOST_DEVICE float Gradient(float y, float dy) const {
    return dy * y;
  }
};

struct Floor {
  static constexpr GradientReads kReads = GradientReads::kNoGradient;
  SYNCLINE_HOST_DEVICE float Value(float x) const { return std::floor(x); }
};

// x * Phi(x); Hendrycks and Gimpel 2016.
struct Gelu {
  static constexpr float kRootHalf = 0.707106781f;       // sqrt(1/2)
  static constexpr float kDensityAtZero = 0.398942280f;  // 1 / sqrt(2 pi)
  // e^(-x^2 / 2): the density of the standard normal is kDensityAtZero times
  // that.
  SYNCLINE_HOST_DEVICE static float Bell(float x) {
    return syncline::Exp(-0.5f * x * x);
  }
  // Cumulative distribution of the standard normal, given Bell(x).
  SYNCLINE_HOST_DEVICE static float Phi(float x, float bell) {
    const float outside = 0.5f * Erfc(std::fabs(x) * kRootHalf, bell);
    return x > 0.0f ? 1.0f - outside : outside;
  }
  SYNCLINE_HOST_DEVICE float Value(float x) const {
    return x * Phi(x, Bell(x));
  }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const {
    const float bell = Bell(x);
    return Phi(x, bell) + x * (kDensityAtZero * bell);
  }
};

// With Phi(x) = (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2.
struct GeluTanh {
  static constexpr float kRootTwoOverPi = 0.797884561f;  // sqrt(2/pi)
  static constexpr float kCubic = 0.044715f;
  // (1 + tanh(u)) / 2 is Logistic(2 u), which cancels nothing where the tanh is
  // near -1: this is 2 u.
  SYNCLINE_HOST_DEVICE static float Inner(float x) {
    return 2.0f * kRootTwoOverPi * (x + kCubic * x * x * x);
  }
  SYNCLINE_HOST_DEVICE float Value(float x) const {
    return x * Logistic(Inner(x));
  }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const {
    const float u = Inner(x);
    // The gate is 1 / (1 + e^-u), its derivative e^-|u| / (1 + e^-|u|)^2.
    const float power = syncline::Exp(-std::fabs(u));
    const float share = 1.0f / (1.0f + power);
    const float gate = u < 0.0f ? power * share : share;
    const float inner = 2.0f * kRootTwoOverPi * (1.0f + 3.0f * kCubic * x * x);
    return gate + x * (power * share * share) * inner;
  }
};

struct HardSigmoid {
  float alpha;
  float beta;
  SYNCLINE_HOST_DEVICE float Value(float x) const {
    const float line = alpha * x + beta;
    return line < 0 ? 0.0f : (line > 1 ? 1.0f : line);
  }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const {
    const float line = alpha * x + beta;
    return line > 0 && line < 1 ? alpha : 0.0f;
  }
};

// Howard et al., ICCV 2019: x * clip(x / 6 + 1 / 2, 0, 1).
struct HardSwish {
  SYNCLINE_HOST_DEVICE float Value(float x) const {
    const float gate = x * (1.0f / 6) + 0.5f;
    const float low = gate < 0 ? 0.0f : gate;
    return x * (low > 1 ? 1.0f : low);
  }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const {
    const float inside = x * (1.0f / 3) + 0.5f;
    return x <= -3 ? 0.0f : (x >= 3 ? 1.0f : inside);
  }
};

struct LeakyRelu {
  float alpha;
  SYNCLINE_HOST_DEVICE float Value(float x) const {
    return x < 0 ? alpha * x : x;
  }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const {
    return x < 0 ? alpha : 1.0f;
  }
};

struct Log {
  SYNCLINE_HOST_DEVICE float Value(float x) const { return std::log(x); }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const { return 1.0f / x; }
};

// Misra, BMVC 2020.
// x * tanh(log(1 + e^x)), where the tanh is n / (n + 2), n = e^x (e^x + 2).
// From 20 on it is 1, which must not become infinity over infinity.
struct Mish {
  SYNCLINE_HOST_DEVICE static float Power(float x) {
    const float power = syncline::Exp(x > 20.0f ? 20.0f : x);
    return power * (power + 2.0f);
  }
  SYNCLINE_HOST_DEVICE float Value(float x) const {
    const float n = Power(x);
    return x * (n / (n + 2.0f));
  }
  // 1 - tanh^2 is 4 (n + 1) / (n + 2)^2, which cancels nothing.
  SYNCLINE_HOST_DEVICE float Derivative(float x) const {
    const float n = Power(x);
    const float share = 1.0f / (n + 2.0f);
    return n * share + x * Logistic(x) * (4.0f * (n + 1.0f) * share * share);
  }
};

struct Negate {
  static constexpr GradientReads kReads = GradientReads::kNothing;
  SYNCLINE_HOST_DEVICE float Value(float x) const { return -x; }
  SYNCLINE_HOST_DEVICE float Gradient(float, float dy) const { return -dy; }
};

struct Reciprocal {
  SYNCLINE_HOST_DEVICE float Value(float x) const { return 1.0f / x; }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const {
    return -1.0f / (x * x);
  }
};

struct Relu {
  static constexpr GradientReads kReads = GradientReads::kOutput;
  SYNCLINE_HOST_DEVICE float Value(float x) const {
    return x < 0.0f ? 0.0f : x;
  }
  SYNCLINE_HOST_DEVICE float Gradient(float y, float dy) const {
    return y > 0.0f ? dy : 0.0f;
  }
};

// To the nearest whole number, of two the even one.
struct Round {
  static constexpr GradientReads kReads = GradientReads::kNoGradient;
  SYNCLINE_HOST_DEVICE float Value(float x) const { return std::nearbyint(x); }
};

// Klambauer et al., NIPS 2017.
struct Selu {
  float alpha;
  float gamma;
  SYNCLINE_HOST_DEVICE float Value(float x) const {
    return gamma * (x > 0 ? x : alpha * ExpMinusOne(x));
  }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const {
    return gamma * (x > 0 ? 1.0f : alpha * syncline::Exp(x));
  }
};

// Zero within [-limit, limit]; outside it, nearer to zero by `bias`.
struct Shrink {
  float limit;
  float bias;
  SYNCLINE_HOST_DEVICE float Value(float x) const {
    return x < -limit ? x + bias : (x > limit ? x - bias : (x == x ? 0.0f : x));
  }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const {
    return x < -limit || x > limit ? 1.0f : 0.0f;
  }
};

struct Sigmoid {
  static constexpr GradientReads kReads = GradientReads::kOutput;
  SYNCLINE_HOST_DEVICE float Value(float x) const { return Logistic(x); }
  SYNCLINE_HOST_DEVICE float Gradient(float y, float dy) const {
    return dy * y * (1.0f - y);
  }
};

struct Sign {
  static constexpr GradientReads kReads = GradientReads::kNoGradient;
  SYNCLINE_HOST_DEVICE float Value(float x) const {
    return x > 0 ? 1.0f : (x < 0 ? -1.0f : x);
  }
};

struct Sin {
  SYNCLINE_HOST_DEVICE float Value(float x) const { return std::sin(x); }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const { return std::cos(x); }
};

struct Sinh {
  SYNCLINE_HOST_DEVICE float Value(float x) const { return std::sinh(x); }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const { return std::cosh(x); }
};

struct Softplus {
  // log(1 + e^x), without overflow.
  SYNCLINE_HOST_DEVICE float Value(float x) const {
    const float a = std::fabs(x);
    return (x > 0 ? x : (x < 0 ? 0.0f : x)) + LogOnePlus(syncline::Exp(-a));
  }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const { return Logistic(x); }
};

struct Softsign {
  SYNCLINE_HOST_DEVICE float Value(float x) const {
    return x / (1.0f + std::fabs(x));
  }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const {
    const float away = 1.0f + std::fabs(x);
    return 1.0f / (away * away);
  }
};

// NaN below 0.
struct Sqrt {
  static constexpr GradientReads kReads = GradientReads::kOutput;
  SYNCLINE_HOST_DEVICE float Value(float x) const { return std::sqrt(x); }
  SYNCLINE_HOST_DEVICE float Gradient(float y, float dy) const {
    return 0.5f * dy / y;
  }
};

// Ramachandran et al., 2017; with alpha 1, SiLU.
struct Swish {
  float alpha;
  SYNCLINE_HOST_DEVICE float Value(float x) const {
    return x * Logistic(alpha * x);
  }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const {
    const float gate = Logistic(alpha * x);
    return gate + alpha * x * gate * (1.0f - gate);
  }
};

struct Tan {
  SYNCLINE_HOST_DEVICE float Value(float x) const { return std::tan(x); }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const {
    const float y = std::tan(x);
    return 1.0f + y * y;
  }
};

struct Tanh {
  static constexpr GradientReads kReads = GradientReads::kOutput;
  SYNCLINE_HOST_DEVICE float Value(float x) const { return syncline::Tanh(x); }
  SYNCLINE_HOST_DEVICE float Gradient(float y, float dy) const {
    return dy * (1.0f - y * y);
  }
};

struct ThresholdedRelu {
  float alpha;
  SYNCLINE_HOST_DEVICE float Value(float x) const {
    return x <= alpha ? 0.0f : x;
  }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const {
    return x > alpha ? 1.0f : 0.0f;
  }
};

}  // namespace pointwise

#define SYNCLINE_POINTWISE_FUNCTIONS(FUNCTION) \
  FUNCTION(Abs)                                \
  FUNCTION(Acos)                               \
  FUNCTION(Acosh)                              \
  FUNCTION(Asin)                               \
  FUNCTION(Asinh)                              \
  FUNCTION(Atan)                               \
  FUNCTION(Atanh)                              \
  FUNCTION(Ceil)                               \
  FUNCTION(Celu)                               \
  FUNCTION(Cos)                                \
  FUNCTION(Cosh)                               \
  FUNCTION(Elu)                                \
  FUNCTION(Erf)                                \
  FUNCTION(Exp)                                \
  FUNCTION(Floor)                              \
  FUNCTION(Gelu)                               \
  FUNCTION(GeluTanh)                           \
  FUNCTION(HardSigmoid)                        \
  FUNCTION(HardSwish)                          \
  FUNCTION(LeakyRelu)                          \
  FUNCTION(Log)                                \
  FUNCTION(Mish)                               \
  FUNCTION(Negate)                             \
  FUNCTION(Reciprocal)                         \
  FUNCTION(Relu)                               \
  FUNCTION(Round)                              \
  FUNCTION(Selu)                               \
  FUNCTION(Shrink)                             \
  FUNCTION(Sigmoid)                            \
  FUNCTION(Sign)                               \
  FUNCTION(Sin)                                \
  FUNCTION(Sinh)                               \
  FUNCTION(Softplus)                           \
  FUNCTION(Softsign)                           \
  FUNCTION(Sqrt)                               \
  FUNCTION(Swish)                              \
  FUNCTION(Tan)                                \
  FUNCTION(Tanh)                               \
  FUNCTION(ThresholdedRelu)

enum class PointwiseFunction {
#define SYNCLINE_NAME_FUNCTION(name) k##name,
  SYNCLINE_POINTWISE_FUNCTIONS(SYNCLINE_NAME_FUNCTION)
#undef SYNCLINE_NAME_FUNCTION
};
inline constexpr size_t kPointwiseFunctions = 0
#define SYNCLINE_COUNT_FUNCTION(name) +1
    SYNCLINE_POINTWISE_FUNCTIONS(SYNCLINE_COUNT_FUNCTION);
#undef SYNCLINE_COUNT_FUNCTION

// The fields of a function, in their order; those that it does not have do not
// matter.
struct PointwiseSettings {
  float first = 0;
  float second = 0;
};

template <typename F>
SYNCLINE_HOST_DEVICE constexpr F WithSettings(const PointwiseSettings& s) {
  if constexpr (requires { F{1.0f, 1.0f}; }) {
    return F{s.first, s.second};
  } else if constexpr (requires { F{1.0f}; }) {
    return F{s.first};
  } else {
    return F{};
  }
}

template <typename F>
constexpr GradientReads GradientReadsOf() {
  if constexpr (requires { F::kReads; }) {
    return F::kReads;
  } else {
    return GradientReads::kInput;
  }
}
GradientReads GradientReadsOf(PointwiseFunction function);

template <typename F>
SYNCLINE_HOST_DEVICE inline float GradientOf(const F& f, float saved,
                                             float dy) {
  if constexpr (requires { f.Derivative(saved); }) {
    return dy * f.Derivative(saved);
  } else {
    return f.Gradient(saved, dy);
  }
}

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_POINTWISE_FUNCTIONS_H_
