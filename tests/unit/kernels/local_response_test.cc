// Goal: local response normalisation and its gradient where the window is cut
// off at either end, is of even size, or is larger than there are channels.
// Method: the definition in double, the gradient by central differences of it.

#include "kernels/local_response.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/testing/arrays.h"

namespace syncline {
namespace {

using testing::ExpectNear;
using testing::FiniteDifferences;
using testing::RandomArray;
using testing::ToFloats;

std::vector<double> Normalized(const LocalResponse& s,
                               const std::vector<double>& x) {
  std::vector<double> y(x.size());
  for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
    const int64_t channel = i / s.plane % s.channels;
    double sum = 0;
    for (int64_t k = channel - (s.size - 1) / 2; k <= channel + s.size / 2;
         ++k) {
      if (k < 0 || k >= s.channels) continue;
      const double v = x[i + (k - channel) * s.plane];
      sum += v * v;
    }
    y[i] = x[i] * std::pow(s.bias + s.alpha / static_cast<double>(s.size) * sum,
                           -double{s.beta});
  }
  return y;
}

TEST(LocalResponseTest, IsItsDefinitionAndDerivative) {
  for (const int64_t size : {1, 2, 3, 5, 40}) {
    for (const float beta : {0.5f, 0.75f, 1.0f, 0.6f}) {
      SCOPED_TRACE(::testing::Message() << size << " " << beta);
      LocalResponse s;
      s.batch = 2;
      s.channels = 6;
      s.plane = 3;
      s.size = size;
      s.alpha = 0.7f;
      s.beta = beta;
      s.bias = 1.5f;
      testing::DoubleArray x = RandomArray({2, 6, 3}, 1);
      const testing::DoubleArray dy = RandomArray({2, 6, 3}, 2);
      const std::vector<float> fx = ToFloats(x.values);
      const std::vector<float> fdy = ToFloats(dy.values);
      std::vector<float> scale(fx.size()), y(fx.size());
      NormalizeResponse(s, fx.data(), scale.data(), y.data());
      ExpectNear(y, Normalized(s, x.values), 1e-6);

      const std::vector<double> want = FiniteDifferences(x.values, [&] {
        return testing::Dot(Normalized(s, x.values), dy.values);
      });
      std::vector<float> ratio(fx.size()), dx = fdy;
      NormalizeResponseGradient(s, fx.data(), scale.data(), dx.data(),
                                /*accumulate=*/false, ratio.data(), dx.data());
      ExpectNear(dx, want, 1e-5);
      NormalizeResponseGradient(s, fx.data(), scale.data(), fdy.data(),
                                /*accumulate=*/true, ratio.data(), dx.data());
      std::vector<double> twice = want;
      for (double& v : twice) v *= 2;
      ExpectNear(dx, twice, 2e-5);
    }
  }
}

TEST(LocalResponseTest, NanSpreadsOverItsWindowOnly) {
  LocalResponse s;
  s.batch = 1;
  s.channels = 5;
  s.plane = 1;
  s.size = 3;
  std::vector<float> x = {1, std::nanf(""), 1, 1, 1}, scale(5), y(5);
  NormalizeResponse(s, x.data(), scale.data(), y.data());
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]) && std::isnan(y[2]));
  EXPECT_FALSE(std::isnan(y[3]) || std::isnan(y[4]));
}

}  // namespace
}  // namespace syncline
