#ifndef SYNCLINE_KERNELS_ELEMENTWISE_VECTOR_MATH_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_VECTOR_MATH_H_

// float32 functions that a loop over them vectorises, unlike libm's, and that
// give the same bits whether it was vectorised or not. No branches; NaN in, NaN
// out.

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/elementwise/host_device.h"

namespace syncline {

// x, clamped to [-86, 89], is n * ln(2) + r with |r| <= ln(2) / 2.
struct PowerOfTwoAndRest {
  float half_power;  // 2^(n-1): 2^128 is no float
  float r;
};
SYNCLINE_HOST_DEVICE inline PowerOfTwoAndRest ReduceByLn2(float x) {
  constexpr float kLow = -86.0f;
  constexpr float kHigh = 89.0f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693359375f;  // few bits: n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4f;
  float v = x < kLow ? kLow : x;
  v = v > kHigh ? kHigh : v;
  const float rounded = v * kLog2E + kRound;
  const float n = rounded - kRound;
  // The exponent is made from the rounded sum's low bits.
  const uint32_t bits = (std::bit_cast<uint32_t>(rounded) << 23) + (126u << 23);
  return {std::bit_cast<float>(bits), (v - n * kLn2High) - n * kLn2Low};
}

// e^x, within 2 units in the last place; 0 below -86, infinity above 88.73.
SYNCLINE_HOST_DEVICE inline float Exp(float x) {
  const auto [half_power, r] = ReduceByLn2(x);
  // Taylor; the next term is below 2^-27.
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const float result = p * half_power * 2.0f;
  return x < -86.0f ? 0.0f : result;
}

// e^x - 1, within 2 units in the last place, near 0 too; -1 below -86, infinity
// above 88.73.
SYNCLINE_HOST_DEVICE inline float ExpMinusOne(float x) {
  const auto [half_power, r] = ReduceByLn2(x);
  // Taylor of (e^r - 1 - r) / r^2; the next term is below 2^-27 of r.
  float p = 1.0f / 40320;
  p = p * r + 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  const float less_one = r + r * r * p;
  // 2^n (e^r - 1) + (2^n - 1), halved.
  return (half_power * less_one + (half_power - 0.5f)) * 2.0f;
}

// Natural logarithm of a normal number above 0, within 2 units in the last
// place.
SYNCLINE_HOST_DEVICE inline float Log(float x) {
  constexpr float kLn2High = 0.693359375f;  // few bits: n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr uint32_t kRootHalf = 0x3f3504f3;
  constexpr uint32_t kMantissa = (1u << 23) - 1;
  // x = 2^n * m with m in [sqrt(1/2), sqrt(2)).
  const uint32_t shifted = std::bit_cast<uint32_t>(x) - kRootHalf;
  const float n = static_cast<float>(static_cast<int32_t>(shifted) >> 23);
  const float m = std::bit_cast<float>((shifted & kMantissa) + kRootHalf);
  // log(m) = 2 artanh(f / (2 + f)); the series' next term is below 2^-28.
  const float f = m - 1.0f;
  const float s = f / (2.0f + f);
  const float s2 = s * s;
  float p = 2.0f / 9;
  p = p * s2 + 2.0f / 7;
  p = p * s2 + 2.0f / 5;
  p = p * s2 + 2.0f / 3;
  // 2 s = f - f s, which keeps the leading term exact.
  const float tail = s * (p * s2 - f);
  return n * kLn2High + (f + (tail + n * kLn2Low));
}

// log(1 + x) for x in [0, 2^23], within 2 units in the last place, near 0 too.
SYNCLINE_HOST_DEVICE inline float LogOnePlus(float x) {
  const float sum = 1.0f + x;
  // Adds what the rounding of `sum` has lost.
  return Log(sum) + (x - (sum - 1.0f)) / sum;
}

// 1 / (1 + e^-x), without overflow.
SYNCLINE_HOST_DEVICE inline float Logistic(float x) {
  return 1.0f / (1.0f + Exp(-x));
}

// Hyperbolic tangent. Near 0 Lambert's continued fraction, which keeps the
// relative error small; elsewhere by Exp.
SYNCLINE_HOST_DEVICE inline float Tanh(float x) {
  const float s = x * x;
  const float fraction = x * (10395.0f + s * (1260.0f + s * 21.0f)) /
                         (10395.0f + s * (4725.0f + s * (210.0f + s)));
  const float a = std::fabs(x);
  const float far = std::copysign(1.0f - 2.0f / (Exp(2.0f * a) + 1.0f), x);
  return a < 0.625f ? fraction : far;
}

// The complementary error function of a >= 0, within 2e-7, given e^(-a^2):
// Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26.
SYNCLINE_HOST_DEVICE inline float Erfc(float a, float exponential) {
  const float t = 1.0f / (1.0f + 0.3275911f * a);
  float q = 1.061405429f;
  q = q * t - 1.453152027f;
  q = q * t + 1.421413741f;
  q = q * t - 0.284496736f;
  q = q * t + 0.254829592f;
  return q * t * exponential;
}

// Error function, within 2e-7. Near 0 its Taylor series, which keeps the
// relative error small; elsewhere by Erfc.
SYNCLINE_HOST_DEVICE inline float Erf(float x) {
  constexpr float kTwoOverRootPi = 1.12837917f;
  const float s = x * x;
  float p = -1.0f / 6894720;  // (-1)^n / (n! (2n + 1)), n = 9 down to 0
  p = p * s + 1.0f / 685440;
  p = p * s - 1.0f / 75600;
  p = p * s + 1.0f / 9360;
  p = p * s - 1.0f / 1320;
  p = p * s + 1.0f / 216;
  p = p * s - 1.0f / 42;
  p = p * s + 1.0f / 10;
  p = p * s - 1.0f / 3;
  p = p * s + 1.0f;
  const float near = kTwoOverRootPi * x * p;
  const float a = std::fabs(x);
  const float far = std::copysign(1.0f - Erfc(a, Exp(-s)), x);
  return a < 1.0f ? near : far;
}

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_VECTOR_MATH_H_
