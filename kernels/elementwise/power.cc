#include "kernels/elementwise/power.h"

#include <cmath>

#include "kernels/elementwise/binary_loop.h"

namespace syncline {
namespace {

// Calls run with a^b as a function of a, for the one exponent there is, or with
// pow.
template <typename Run>
void WithExponent(const Broadcast& s, const float* b, Run run) {
  const float exponent = s.b_count == 1 ? *b : 0.0f;
  if (exponent == 2.0f) {
    run([](float p, float) { return p * p; });
  } else if (exponent == 1.0f) {
    run([](float p, float) { return p; });
  } else if (exponent == 0.5f) {
    // As pow has it, -0 becomes 0.
    run([](float p, float) { return std::sqrt(p + 0.0f); });
  } else if (exponent == -1.0f) {
    run([](float p, float) { return 1.0f / p; });
  } else if (exponent == 3.0f) {
    run([](float p, float) { return p * p * p; });
  } else {
    run([](float p, float q) { return std::pow(p, q); });
  }
}

// The same for b * a^(b - 1).
template <typename Run>
void WithDerivative(const Broadcast& s, const float* b, Run run) {
  const float exponent = s.b_count == 1 ? *b : 0.0f;
  if (exponent == 2.0f) {
    run([](float p, float) { return 2.0f * p; });
  } else if (exponent == 1.0f) {
    run([](float, float) { return 1.0f; });
  } else if (exponent == 0.5f) {
    run([](float p, float) { return 0.5f / std::sqrt(p); });
  } else if (exponent == -1.0f) {
    run([](float p, float) { return -1.0f / (p * p); });
  } else if (exponent == 3.0f) {
    run([](float p, float) { return 3.0f * p * p; });
  } else {
    run([](float p, float q) {
      return q == 0.0f ? 0.0f : q * std::pow(p, q - 1.0f);
    });
  }
}

}  // namespace

void Power(const Broadcast& s, const float* a, const float* b, float* y) {
  WithExponent(s, b, [&](auto power) { ApplyBinary(s, a, b, y, power); });
}

void PowerGradientA(const Broadcast& s, const float* a, const float* b,
                    const float* dy, bool accumulate, float* da) {
  WithDerivative(s, b, [&](auto derivative) {
    BinaryGradient(s, Side::kA, accumulate, da,
                   [=](int64_t o, int64_t ia, int64_t ib) {
                     return dy[o] * derivative(a[ia], b[ib]);
                   });
  });
}

void PowerGradientB(const Broadcast& s, const float* a, const float* y,
                    const float* dy, bool accumulate, float* db) {
  BinaryGradient(s, Side::kB, accumulate, db,
                 [=](int64_t o, int64_t ia, int64_t) {
                   return a[ia] == 0.0f ? 0.0f : dy[o] * y[o] * std::log(a[ia]);
                 });
}

}  // namespace syncline
