// Goal: float32 functions of single elements. Method: against the reference in
// double, in place, accumulating; NaN and infinities as documented.

#include "kernels/elementwise/pointwise.h"

#include <limits>

#include "kernels/reference/reference_pointwise.h"
#include "tests/testing/arrays.h"

namespace syncline {
namespace {

using testing::DoubleArray;
using testing::ExpectNear;
using testing::RandomArray;
using testing::ToFloats;

using ForwardKernel = void (*)(int64_t, const float*, float*);
using GradientKernel = void (*)(int64_t, const float*, const float*, bool,
                                float*);

template <typename F>
void ExpectReference(ForwardKernel forward, GradientKernel gradient,
                     bool from_input, double least) {
  DoubleArray x({401});
  for (int i = 0; i < 401; ++i) {
    x.values[i] = static_cast<float>(least + i * 0.0203);
  }
  const std::vector<float> fx = ToFloats(x.values);
  std::vector<float> y(fx.size());
  forward(401, fx.data(), y.data());
  ExpectNear(y, reference::Unary<F>(x).values, 1e-6);
  std::vector<float> in_place = fx;
  forward(401, in_place.data(), in_place.data());
  EXPECT_EQ(in_place, y);

  const DoubleArray dy = RandomArray(x.dims, 5);
  const std::vector<float> fdy = ToFloats(dy.values);
  std::vector<double> want = reference::UnaryGradient<F>(x, dy)[0].values;
  const std::vector<float>& saved = from_input ? fx : y;
  std::vector<float> dx(fx.size(), 99.0f);
  gradient(401, saved.data(), fdy.data(), false, dx.data());
  ExpectNear(dx, want, 1e-6);
  in_place = fdy;
  gradient(401, saved.data(), in_place.data(), false, in_place.data());
  EXPECT_EQ(in_place, dx);
  gradient(401, saved.data(), fdy.data(), true, dx.data());
  for (double& v : want) v *= 2;
  ExpectNear(dx, want, 2e-6);
}

TEST(PointwiseTest, AllAreTheReference) {
  ExpectReference<reference::Exp>(Exp, ExpGradient, false, -4);
  ExpectReference<reference::Negate>(Negate, NegateGradient, true, -4);
  ExpectReference<reference::SquareRoot>(SquareRoot, SquareRootGradient, false,
                                         0.01);
  ExpectReference<reference::ErrorFunction>(ErrorFunction,
                                            ErrorFunctionGradient, true, -4);
}

TEST(PointwiseTest, NanStaysNan) {
  for (ForwardKernel kernel :
       {static_cast<ForwardKernel>(Exp), Negate, SquareRoot, ErrorFunction}) {
    const std::vector<float> x(9, std::numeric_limits<float>::quiet_NaN());
    std::vector<float> y(9);
    kernel(9, x.data(), y.data());
    for (float v : y) EXPECT_TRUE(std::isnan(v));
  }
}

TEST(PointwiseTest, TheRootOfWhatIsNegativeIsNan) {
  const float x = -1;
  float y = 0;
  SquareRoot(1, &x, &y);
  EXPECT_TRUE(std::isnan(y));
}

}  // namespace
}  // namespace syncline
