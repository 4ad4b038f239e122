// Goal: float32 activations and gradients. Method: against the reference in
// double over a range of inputs, in place and accumulating; NaN and infinities
// as documented.

#include "kernels/elementwise/activation.h"

#include <limits>

#include "tests/testing/arrays.h"

namespace syncline {
namespace {

using testing::DoubleArray;
using testing::ExpectNear;
using testing::RandomArray;
using testing::ToFloats;

constexpr double kTolerance = 1e-6;

// -12 to 12 in uneven steps, without 0.
DoubleArray Inputs() {
  DoubleArray x({401});
  for (int i = 0; i < 401; ++i) {
    x.values[i] = static_cast<float>((i - 200.3) * 0.06);
  }
  return x;
}

using ForwardKernel = void (*)(int64_t, const float*, float*);
using GradientKernel = void (*)(int64_t, const float*, const float*, bool,
                                float*);

template <typename F>
void ExpectReference(ForwardKernel forward, GradientKernel gradient,
                     bool from_input) {
  const DoubleArray x = Inputs();
  const std::vector<float> fx = ToFloats(x.values);
  const int64_t n = fx.size();
  const DoubleArray want = reference::Unary<F>(x);
  std::vector<float> y(n);
  forward(n, fx.data(), y.data());
  ExpectNear(y, want.values, kTolerance);
  std::vector<float> in_place = fx;
  forward(n, in_place.data(), in_place.data());
  EXPECT_EQ(in_place, y);

  const DoubleArray dy = RandomArray(x.dims, 5);
  const std::vector<float> fdy = ToFloats(dy.values);
  const std::vector<double> want_dx =
      reference::UnaryGradient<F>(x, dy)[0].values;
  const std::vector<float>& saved = from_input ? fx : y;
  std::vector<float> dx(n, 99.0f);
  gradient(n, saved.data(), fdy.data(), false, dx.data());
  ExpectNear(dx, want_dx, kTolerance);
  in_place = fdy;
  gradient(n, saved.data(), in_place.data(), false, in_place.data());
  EXPECT_EQ(in_place, dx);
  gradient(n, saved.data(), fdy.data(), true, dx.data());
  std::vector<double> twice = want_dx;
  for (double& v : twice) v *= 2;
  ExpectNear(dx, twice, 2 * kTolerance);
}

TEST(ActivationTest, ReluIsTheReference) {
  ExpectReference<reference::Relu>(Relu, ReluGradient, false);
}
TEST(ActivationTest, SigmoidIsTheReference) {
  ExpectReference<reference::Sigmoid>(Sigmoid, SigmoidGradient, false);
}
TEST(ActivationTest, TanhIsTheReference) {
  ExpectReference<reference::Tanh>(Tanh, TanhGradient, false);
}
TEST(ActivationTest, GeluIsTheReference) {
  ExpectReference<reference::Gelu>(Gelu, GeluGradient, true);
}
TEST(ActivationTest, GeluTanhIsTheReference) {
  ExpectReference<reference::GeluTanh>(GeluTanh, GeluTanhGradient, true);
}

TEST(ActivationTest, NanStaysNan) {
  for (ForwardKernel kernel :
       {Relu, Sigmoid, static_cast<ForwardKernel>(Tanh), Gelu, GeluTanh}) {
    const std::vector<float> x(9, std::numeric_limits<float>::quiet_NaN());
    std::vector<float> y(9);
    kernel(9, x.data(), y.data());
    for (float v : y) EXPECT_TRUE(std::isnan(v));
  }
}

TEST(ActivationTest, LargeInputsSaturate) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {-infinity, -1e30f, 1e30f, infinity};
  std::vector<float> y(4);
  Sigmoid(4, x.data(), y.data());
  EXPECT_EQ(y, (std::vector<float>{0, 0, 1, 1}));
  Tanh(4, x.data(), y.data());
  EXPECT_EQ(y, (std::vector<float>{-1, -1, 1, 1}));
}

}  // namespace
}  // namespace syncline
