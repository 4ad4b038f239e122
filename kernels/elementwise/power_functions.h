#ifndef SYNCLINE_KERNELS_ELEMENTWISE_POWER_FUNCTIONS_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_POWER_FUNCTIONS_H_

// Powers and their derivatives, for the compiler of each device. A function is
// a struct with Value(a, b), which is a^b, and Derivative(a, b), which is
// b * a^(b - 1).

#include <cmath>

#include "kernels/elementwise/host_device.h"

namespace syncline {
namespace power {

struct Any {
  SYNCLINE_HOST_DEVICE static float Value(float a, float b) {
    return std::pow(a, b);
  }
  SYNCLINE_HOST_DEVICE static float Derivative(float a, float b) {
    return b == 0.0f ? 0.0f : b * std::pow(a, b - 1.0f);
  }
};

struct Cube {
  SYNCLINE_HOST_DEVICE static float Value(float a, float) { return a * a * a; }
  SYNCLINE_HOST_DEVICE static float Derivative(float a, float) {
    return 3.0f * a * a;
  }
};

struct First {
  SYNCLINE_HOST_DEVICE static float Value(float a, float) { return a; }
  SYNCLINE_HOST_DEVICE static float Derivative(float, float) { return 1.0f; }
};

struct Inverse {
  SYNCLINE_HOST_DEVICE static float Value(float a, float) { return 1.0f / a; }
  SYNCLINE_HOST_DEVICE static float Derivative(float a, float) {
    return -1.0f / (a * a);
  }
};

struct Root {
  SYNCLINE_HOST_DEVICE static float Value(float a, float) {
    // As pow has it, -0 becomes 0.
    return std::sqrt(a + 0.0f);
  }
  SYNCLINE_HOST_DEVICE static float Derivative(float a, float) {
    return 0.5f / std::sqrt(a);
  }
};

struct Square {
  SYNCLINE_HOST_DEVICE static float Value(float a, float) { return a * a; }
  SYNCLINE_HOST_DEVICE static float Derivative(float a, float) {
    return 2.0f * a;
  }
};

}  // namespace power

// Calls run(function) with the cheapest function for the one exponent that all
// elements have.
template <typename Run>
SYNCLINE_HOST_DEVICE void WithExponent(float exponent, Run run) {
  if (exponent == 2.0f) {
    run(power::Square());
  } else if (exponent == 1.0f) {
    run(power::First());
  } else if (exponent == 0.5f) {
    run(power::Root());
  } else if (exponent == -1.0f) {
    run(power::Inverse());
  } else if (exponent == 3.0f) {
    run(power::Cube());
  } else {
    run(power::Any());
  }
}

// The gradient of an exponent: dy * y * log(a), and 0 where a is 0.
SYNCLINE_HOST_DEVICE inline float ExponentGradient(float a, float y, float dy) {
  return a == 0.0f ? 0.0f : dy * y * std::log(a);
}

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_POWER_FUNCTIONS_H_
