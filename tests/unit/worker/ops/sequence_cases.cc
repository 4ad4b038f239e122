// Rows of the operator table for what sequence models add: the pieces that
// exporters make normalisations and activations of.

#include <cmath>

#include "kernels/reference_pointwise.h"
#include "tests/testing/op_case.h"

namespace syncline::testing {
namespace {

using reference::Dims;

OpCase PowCase(Dims a, Dims b) {
  return BinaryCase(
      "Pow", a, b, [](double p, double q) { return std::pow(p, q); },
      [](double p, double q) { return q * std::pow(p, q - 1); },
      [](double p, double q) { return std::pow(p, q) * std::log(p); },
      /*positive=*/true);
}

// An exponent of another type, which is none that is trained.
OpCase PowCase(Dims a, int64_t exponent) {
  const double n = exponent;
  OpCase c;
  c.op_type = "Pow";
  c.version = 15;
  c.inputs = {a};
  c.forward = [=](const Inputs& in) {
    DoubleArray y = in[0];
    for (double& v : y.values) v = std::pow(v, n);
    return y;
  };
  c.gradient = [=](const Inputs& in, const DoubleArray& dy) {
    DoubleArray dx = dy;
    for (size_t i = 0; i < dx.values.size(); ++i) {
      dx.values[i] *= n * std::pow(in[0].values[i], n - 1);
    }
    return Gradients{dx};
  };
  c.integers = {{1, {}, {exponent}}};
  return c;
}

}  // namespace

std::vector<OpCase> SequenceCases() {
  return {
      UnaryCase<reference::Exp>("Exp"),
      UnaryCase<reference::Negate>("Neg"),
      UnaryCase<reference::SquareRoot>("Sqrt", {}, /*positive=*/true),
      UnaryCase<reference::ErrorFunction>("Erf"),
      PowCase({4, 5}, Dims{4, 5}),
      PowCase({4, 5}, Dims{5}),
      PowCase({3}, Dims{2, 3}),
      PowCase({4, 5}, Dims{}),
      PowCase({4, 5}, int64_t{2}),
      PowCase({4, 5}, int64_t{3}),
      PowCase({4, 5}, int64_t{-1}),
      PowCase({4, 5}, int64_t{1}),
      PowCase({4, 5}, int64_t{5}),
      PowCase({4, 5}, int64_t{0}),
  };
}

}  // namespace syncline::testing
