// Rows of op_table_test for activations with settings, and for plain functions
// that need no kernel of their own.

#include <algorithm>
#include <cmath>

#include "tests/testing/op_case.h"

namespace syncline::testing {
namespace {

using reference::Dims;
using Attributes = std::map<std::string, Attribute>;
using Function = std::function<double(double)>;

OpCase PointwiseCase(std::string op_type, Attributes attributes, Function value,
                     Function derivative, bool positive = false) {
  OpCase c;
  c.op_type = std::move(op_type);
  c.version = 16;
  c.attributes = std::move(attributes);
  c.inputs = {{5, 7}};
  c.positive = positive;
  const auto mapped = [](const DoubleArray& x, const Function& f) {
    DoubleArray y(x.dims);
    for (size_t i = 0; i < x.values.size(); ++i) y.values[i] = f(x.values[i]);
    return y;
  };
  c.forward = [=](const Inputs& in) { return mapped(in[0], value); };
  c.gradient = [=](const Inputs& in, const DoubleArray& dy) {
    DoubleArray dx = mapped(in[0], derivative);
    for (size_t i = 0; i < dx.values.size(); ++i) dx.values[i] *= dy.values[i];
    return Gradients{dx};
  };
  return c;
}

OpCase LeakyCase(Attributes attributes, double alpha) {
  return PointwiseCase(
      "LeakyRelu", std::move(attributes),
      [=](double x) { return x < 0 ? alpha * x : x; },
      [=](double x) { return x < 0 ? alpha : 1; });
}

OpCase ExponentialCase(std::string op_type, Attributes attributes, double alpha,
                       double gamma) {
  return PointwiseCase(
      std::move(op_type), std::move(attributes),
      [=](double x) { return gamma * (x < 0 ? alpha * std::expm1(x) : x); },
      [=](double x) { return gamma * (x < 0 ? alpha * std::exp(x) : 1); });
}

// For functions of (-1, 1).
OpCase WithinOne(std::string op_type, Function value, Function derivative) {
  OpCase c = PointwiseCase(std::move(op_type), {}, value, derivative);
  c.drawn_factor = 0.75;
  return c;
}

// For functions of what is above 1.
OpCase AboveOne(std::string op_type, Function value, Function derivative) {
  OpCase c = PointwiseCase(std::move(op_type), {}, value, derivative,
                           /*positive=*/true);
  c.drawn_offset = 1;
  return c;
}

double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

OpCase SwishCase(Attributes attributes, double alpha) {
  return PointwiseCase(
      "Swish", std::move(attributes),
      [=](double x) { return x * Logistic(alpha * x); },
      [=](double x) {
        const double gate = Logistic(alpha * x);
        return gate + alpha * x * gate * (1 - gate);
      });
}

}  // namespace

std::vector<OpCase> ActivationCases() {
  const double alpha = 1.67326319217681884765625;
  const double gamma = 1.05070102214813232421875;
  return {
      LeakyCase({}, 0.01f),
      LeakyCase({{"alpha", 0.25f}}, 0.25),
      ExponentialCase("Elu", {}, 1, 1),
      ExponentialCase("Elu", {{"alpha", 0.5f}}, 0.5, 1),
      ExponentialCase("Selu", {}, alpha, gamma),
      ExponentialCase("Selu", {{"alpha", 2.0f}, {"gamma", 3.0f}}, 2, 3),
      PointwiseCase(
          "HardSwish", {},
          [](double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); },
          [](double x) { return x / 3 + 0.5; }),
      PointwiseCase(
          "Softplus", {}, [](double x) { return std::log1p(std::exp(x)); },
          Logistic),
      PointwiseCase(
          "Abs", {}, [](double x) { return std::fabs(x); },
          [](double x) { return x < 0 ? -1 : 1; }),
      PointwiseCase(
          "Reciprocal", {}, [](double x) { return 1 / x; },
          [](double x) { return -1 / (x * x); }),
      PointwiseCase(
          "Log", {}, [](double x) { return std::log(x); },
          [](double x) { return 1 / x; }, /*positive=*/true),
      PointwiseCase(
          "Celu", {{"alpha", 0.5f}},
          [](double x) { return x < 0 ? std::expm1(x / 0.5) * 0.5 : x; },
          [](double x) { return x < 0 ? std::exp(x / 0.5) : 1; }),
      PointwiseCase(
          "HardSigmoid", {},
          [](double x) { return std::clamp(double{0.2f} * x + 0.5, 0.0, 1.0); },
          [](double) { return 0.2f; }),
      PointwiseCase(
          "HardSigmoid", {{"alpha", 1.0f}, {"beta", 0.25f}},
          [](double x) { return std::clamp(x + 0.25, 0.0, 1.0); },
          [](double x) { return x > -0.25 && x < 0.75 ? 1 : 0; }),
      PointwiseCase(
          "Softsign", {}, [](double x) { return x / (1 + std::fabs(x)); },
          [](double x) { return std::pow(1 + std::fabs(x), -2); }),
      PointwiseCase(
          "ThresholdedRelu", {{"alpha", 0.5f}},
          [](double x) { return x > 0.5 ? x : 0; },
          [](double x) { return x > 0.5 ? 1 : 0; }),
      SwishCase({}, 1),
      SwishCase({{"alpha", 1.5f}}, 1.5),
      PointwiseCase(
          "Mish", {},
          [](double x) { return x * std::tanh(std::log1p(std::exp(x))); },
          [](double x) {
            const double gate = std::tanh(std::log1p(std::exp(x)));
            return gate + x * Logistic(x) * (1 - gate * gate);
          }),
      PointwiseCase(
          "Sin", {}, [](double x) { return std::sin(x); },
          [](double x) { return std::cos(x); }),
      PointwiseCase(
          "Shrink", {{"lambd", 0.5f}, {"bias", 0.125f}},
          [](double x) {
            return x < -0.5 ? x + 0.125 : (x > 0.5 ? x - 0.125 : 0);
          },
          [](double x) { return std::fabs(x) > 0.5 ? 1 : 0; }),
      PointwiseCase(
          "Tan", {}, [](double x) { return std::tan(x); },
          [](double x) { return 1 / (std::cos(x) * std::cos(x)); }),
      PointwiseCase(
          "Atan", {}, [](double x) { return std::atan(x); },
          [](double x) { return 1 / (1 + x * x); }),
      PointwiseCase(
          "Sinh", {}, [](double x) { return std::sinh(x); },
          [](double x) { return std::cosh(x); }),
      PointwiseCase(
          "Cosh", {}, [](double x) { return std::cosh(x); },
          [](double x) { return std::sinh(x); }),
      PointwiseCase(
          "Asinh", {}, [](double x) { return std::asinh(x); },
          [](double x) { return 1 / std::sqrt(1 + x * x); }),
      WithinOne(
          "Asin", [](double x) { return std::asin(x); },
          [](double x) { return 1 / std::sqrt(1 - x * x); }),
      WithinOne(
          "Acos", [](double x) { return std::acos(x); },
          [](double x) { return -1 / std::sqrt(1 - x * x); }),
      WithinOne(
          "Atanh", [](double x) { return std::atanh(x); },
          [](double x) { return 1 / (1 - x * x); }),
      AboveOne(
          "Acosh", [](double x) { return std::acosh(x); },
          [](double x) { return 1 / std::sqrt(x * x - 1); }),
      PointwiseCase(
          "Cos", {}, [](double x) { return std::cos(x); },
          [](double x) { return -std::sin(x); }),
  };
}

}  // namespace syncline::testing
