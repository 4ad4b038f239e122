#ifndef SYNCLINE_TESTS_TESTING_ARRAYS_H_
#define SYNCLINE_TESTS_TESTING_ARRAYS_H_

// Arrays for numeric tests: seeded values, conversion, comparison, and the
// derivative of a function by central differences.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "common/base/random.h"
#include "kernels/reference/reference.h"

namespace syncline::testing {

using DoubleArray = reference::Array<double>;

// Magnitudes in [0.25, 1.25), either sign: away from Relu's corner and from
// division by nearly nothing. Exact in float32, so that a float32 kernel and
// its reference start from the same numbers.
inline DoubleArray RandomArray(const reference::Dims& dims, uint64_t seed) {
  DoubleArray array(dims);
  Random random(seed);
  for (double& v : array.values) {
    const double magnitude = 0.25 + random.Uniform();
    v = static_cast<float>(random.Below(2) == 0 ? magnitude : -magnitude);
  }
  return array;
}

// [N, C, ...] as [N, C / block, ..., block], in the same dims.
inline DoubleArray InBlocks(const DoubleArray& x, int64_t block) {
  DoubleArray y(x.dims);
  const int64_t plane = reference::Product(x.dims) / (x.dims[0] * x.dims[1]);
  for (size_t i = 0; i < x.values.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i) % plane;
    const int64_t channel = static_cast<int64_t>(i) / plane;  // of all samples
    y.values[(channel / block * plane + at) * block + channel % block] =
        x.values[i];
  }
  return y;
}

inline std::vector<float> ToFloats(const std::vector<double>& values) {
  return std::vector<float>(values.begin(), values.end());
}

// Every element within `tolerance`, absolute below 1 and relative above.
inline void ExpectNear(absl::Span<const float> got,
                       const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::fabs(want[i])))
        << "element " << i;
  }
}

inline void ExpectNear(const std::vector<double>& got,
                       const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::fabs(want[i])))
        << "element " << i;
  }
}

// d f / d x[i] for every i, by central differences; f reads x.
inline std::vector<double> FiniteDifferences(std::vector<double>& x,
                                             const std::function<double()>& f,
                                             double step = 1e-5) {
  std::vector<double> gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + step;
    const double above = f();
    x[i] = at - step;
    const double below = f();
    x[i] = at;
    gradient[i] = (above - below) / (2 * step);
  }
  return gradient;
}

// Sum of a * b: turns an output into a number whose gradient is b.
inline double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_ARRAYS_H_
