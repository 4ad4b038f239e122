#ifndef SYNCLINE_KERNELS_REFERENCE_REFERENCE_POINTWISE_H_
#define SYNCLINE_KERNELS_REFERENCE_REFERENCE_POINTWISE_H_

// Plain functions, as kernels/reference/reference.h has the activations: value
// and derivative at x, for Unary and UnaryGradient.

#include <cmath>

namespace syncline::reference {

struct Exp {
  template <typename T>
  static T Value(T x) {
    return std::exp(x);
  }
  template <typename T>
  static T Derivative(T x) {
    return std::exp(x);
  }
};

struct Negate {
  template <typename T>
  static T Value(T x) {
    return -x;
  }
  template <typename T>
  static T Derivative(T) {
    return T(-1);
  }
};

struct SquareRoot {
  template <typename T>
  static T Value(T x) {
    return std::sqrt(x);
  }
  template <typename T>
  static T Derivative(T x) {
    return T(1) / (T(2) * std::sqrt(x));
  }
};

struct ErrorFunction {
  template <typename T>
  static T Value(T x) {
    return std::erf(x);
  }
  template <typename T>
  static T Derivative(T x) {
    return T(2) / std::sqrt(T(M_PI)) * std::exp(-x * x);
  }
};

}  // namespace syncline::reference

#endif  // SYNCLINE_KERNELS_REFERENCE_REFERENCE_POINTWISE_H_
