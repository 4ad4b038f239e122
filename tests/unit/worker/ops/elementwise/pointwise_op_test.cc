// Goal: activations that are near 0 keep their digits there, and so do their
// derivatives. Method: each operator over twelve decades on both sides of 0,
// against libm in double, relative errors.

#include "worker/ops/elementwise/pointwise_op.h"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/op_run.h"

namespace syncline::worker {
namespace {

using testing::DoubleArray;
using testing::OpRun;

struct Case {
  std::string op_type;
  std::map<std::string, Attribute> attributes;
  double (*value)(double x);
  double (*derivative)(double x);
  double lowest;  // where float32 has the value
  int version = 22;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.op_type;
}

double Sigma(double x) { return 1 / (1 + std::exp(-x)); }

constexpr double kAlpha = 1.67326319, kGamma = 1.05070102;
double Selu(double x) { return kGamma * (x > 0 ? x : kAlpha * std::expm1(x)); }
double SeluSlope(double x) {
  return kGamma * (x > 0 ? 1 : kAlpha * std::exp(x));
}

double Mish(double x) { return x * std::tanh(std::log1p(std::exp(x))); }
double MishSlope(double x) {
  const double t = std::tanh(std::log1p(std::exp(x)));
  const double c = std::cosh(std::log1p(std::exp(x)));
  return t + x * Sigma(x) / (c * c);
}

double Twice(double x) {
  return 2 * 0.7978845608028654 * (x + 0.044715 * x * x * x);
}
double Gelu(double x) { return x * Sigma(Twice(x)); }
double GeluSlope(double x) {
  const double s = Sigma(Twice(x));
  return s + x * s * Sigma(-Twice(x)) * 2 * 0.7978845608028654 *
                 (1 + 3 * 0.044715 * x * x);
}

class RelativeErrorTest : public ::testing::TestWithParam<Case> {};

TEST_P(RelativeErrorTest, IsSmallNearZeroAndFarFromIt) {
  const Case& c = GetParam();
  DoubleArray x({0}), dy({0});
  for (double size = 1e-10; size < 60; size *= 1.37) {
    for (const double signed_size : {size, -size}) {
      if (signed_size < c.lowest) continue;
      x.values.push_back(static_cast<float>(signed_size));
      dy.values.push_back(1);
    }
  }
  x.dims = dy.dims = {static_cast<int64_t>(x.values.size())};
  OpRun run(c.op_type, c.version, c.attributes);
  run.Input(x).Output(x.dims);
  ASSERT_TRUE(run.Forward().ok());
  const std::vector<float> dx = run.Backward({dy})[0];
  for (size_t i = 0; i < x.values.size(); ++i) {
    const double at = x.values[i];
    const double y = c.value(at);
    EXPECT_NEAR(run.output(0)[i], y, 2e-6 * std::fabs(y) + 1e-36) << at;
    const double slope = c.derivative(at);
    // Where the derivative crosses 0 its error is that of its parts.
    EXPECT_NEAR(dx[i], slope, 4e-6 * std::fabs(slope) + 4e-7 * std::fabs(y))
        << at;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Activations, RelativeErrorTest,
    ::testing::Values(
        Case{"Elu",
             {},
             [](double x) { return x < 0 ? std::expm1(x) : x; },
             [](double x) { return x < 0 ? std::exp(x) : 1.0; },
             -60},
        Case{"Celu",
             {{"alpha", 2.0f}},
             [](double x) { return x < 0 ? 2 * std::expm1(x / 2) : x; },
             [](double x) { return x < 0 ? std::exp(x / 2) : 1.0; },
             -60,
             12},
        Case{"Selu", {}, Selu, SeluSlope, -60},
        Case{"Softplus",
             {},
             [](double x) {
               return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x)));
             },
             Sigma,
             -60},
        Case{"Mish", {}, Mish, MishSlope, -40},
        Case{"Gelu",
             {{"approximate", std::string("tanh")}},
             Gelu,
             GeluSlope,
             -2.5,
             20}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace syncline::worker
