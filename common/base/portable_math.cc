#include "common/base/portable_math.h"

#include <cmath>
#include <limits>

namespace syncline {
namespace {

// ln 2 in two parts: k * kLn2High is exact for |k| <= 2^20.
constexpr double kLn2High = 6.93147180369123816490e-01;
constexpr double kLn2Low = 1.90821492927058770002e-10;
constexpr double kSqrtHalf = 0.70710678118654752440;

}  // namespace

// x = m * 2^k with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh((m-1)/(m+1)).
// frexp, ldexp and floor are exact.
double PortableLog(double x) {
  int k = 0;
  double m = std::frexp(x, &k);
  if (m < kSqrtHalf) {
    m *= 2;
    --k;
  }
  const double t = (m - 1) / (m + 1);  // |t| < 0.172
  const double t2 = t * t;
  double sum = 0;
  for (int n = 21; n >= 1; n -= 2) sum = sum * t2 + 1.0 / n;
  return k * kLn2High + (2 * t * sum + k * kLn2Low);
}

// x = k ln 2 + r with |r| <= ln 2 / 2; Taylor's series of e^r.
double PortableExp(double x) {
  if (x < -700) return 0;
  if (x > 709) return std::numeric_limits<double>::infinity();
  const double k = std::floor(x * 1.44269504088896340736 + 0.5);
  const double r = (x - k * kLn2High) - k * kLn2Low;
  double sum = 1;
  for (int n = 13; n >= 1; --n) sum = 1 + sum * r / n;
  return std::ldexp(sum, static_cast<int>(k));
}

}  // namespace syncline
