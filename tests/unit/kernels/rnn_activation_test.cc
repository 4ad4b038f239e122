// Goal: each function of a cell is what ONNX calls so, its gradient is its
// derivative, and neither loses NaN. Method: the reference in double and its
// central differences, over arguments on both sides of every corner.
// (worker_recurrent_op_test holds whole cells against the reference.)

#include "kernels/rnn_activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/reference/reference_recurrent.h"

namespace syncline {
namespace {

using Kind = RnnActivation::Kind;

struct Named {
  Kind kind;
  reference::NamedFunction reference;
};

const std::vector<Named>& Functions() {
  static const std::vector<Named> functions = {
      {Kind::kAffine, {"Affine", 0.5, 0.25}},
      {Kind::kElu, {"Elu", 0.7}},
      {Kind::kHardSigmoid, {"HardSigmoid", 0.3, 0.4}},
      {Kind::kLeakyRelu, {"LeakyRelu", -0.2}},
      {Kind::kRelu, {"Relu"}},
      {Kind::kScaledTanh, {"ScaledTanh", 1.5, -0.6}},
      {Kind::kSigmoid, {"Sigmoid"}},
      {Kind::kSoftplus, {"Softplus"}},
      {Kind::kSoftsign, {"Softsign"}},
      {Kind::kTanh, {"Tanh"}},
      {Kind::kThresholdedRelu, {"ThresholdedRelu", 0.6}}};
  return functions;
}

RnnActivation FunctionOf(const Named& named, float clip) {
  return {.kind = named.kind,
          .alpha = static_cast<float>(named.reference.alpha),
          .beta = static_cast<float>(named.reference.beta),
          .clip = clip};
}

TEST(RnnActivationTest, ValuesAndDerivativesAreTheReferences) {
  constexpr double kStep = 1e-6;
  std::vector<float> x;
  for (int i = -40; i < 40; ++i) x.push_back(0.1f * i + 0.03f);
  const int64_t n = x.size();
  for (const float clip : {INFINITY, 1.0f}) {
    for (const Named& named : Functions()) {
      SCOPED_TRACE(named.reference.name);
      const auto exact = [&](double v) {
        const double c = clip;
        return reference::Activate(named.reference, std::clamp(v, -c, c));
      };
      std::vector<float> y(n), dx(n, 3.0f);
      Apply(FunctionOf(named, clip), n, x.data(), y.data());
      ApplyGradient(FunctionOf(named, clip), n, x.data(), dx.data(), dx.data());
      for (int64_t i = 0; i < n; ++i) {
        const double slope =
            (exact(x[i] + kStep) - exact(x[i] - kStep)) / (2 * kStep);
        EXPECT_NEAR(y[i], exact(x[i]), 1e-6) << "at " << x[i];
        EXPECT_NEAR(dx[i], 3 * slope, 1e-5) << "at " << x[i];
      }
    }
  }
}

TEST(RnnActivationTest, NanStays) {
  const float nan = std::nanf("");
  for (const float clip : {INFINITY, 1.0f}) {
    for (const Named& named : Functions()) {
      float y = 0;
      Apply(FunctionOf(named, clip), 1, &nan, &y);
      EXPECT_TRUE(std::isnan(y)) << named.reference.name;
    }
  }
}

}  // namespace
}  // namespace syncline
