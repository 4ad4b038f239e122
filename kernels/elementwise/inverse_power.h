#ifndef SYNCLINE_KERNELS_ELEMENTWISE_INVERSE_POWER_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_INVERSE_POWER_H_

// s^-beta, for the compiler of each device: by roots, which a loop vectorises,
// for the exponents that local response normalisation has.

#include <cmath>

#include "kernels/elementwise/host_device.h"

namespace syncline {
namespace inverse_power {

// Krizhevsky's beta.
struct OfThreeQuarters {
  SYNCLINE_HOST_DEVICE float operator()(float s) const {
    const float root = std::sqrt(s);
    return 1.0f / (root * std::sqrt(root));
  }
};
struct OfHalf {
  SYNCLINE_HOST_DEVICE float operator()(float s) const {
    return 1.0f / std::sqrt(s);
  }
};
struct OfOne {
  SYNCLINE_HOST_DEVICE float operator()(float s) const { return 1.0f / s; }
};
struct OfAny {
  float beta;
  SYNCLINE_HOST_DEVICE float operator()(float s) const {
    return std::pow(s, -beta);
  }
};

}  // namespace inverse_power

// Calls run(power), power(s) being s^-beta.
template <typename Run>
void WithInversePower(float beta, Run run) {
  if (beta == 0.75f) return run(inverse_power::OfThreeQuarters());
  if (beta == 0.5f) return run(inverse_power::OfHalf());
  if (beta == 1.0f) return run(inverse_power::OfOne());
  run(inverse_power::OfAny{beta});
}

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_INVERSE_POWER_H_
