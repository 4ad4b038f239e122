// Rows of op_table_test for arithmetic and the activations of one formula,
// element by element.

#include <cmath>
#include <string>

#include "tests/testing/op_case.h"

namespace syncline::testing {
namespace {

using reference::Dims;

OpCase AddCase(Dims a, Dims b) {
  return BinaryCase(
      "Add", a, b, [](double p, double q) { return p + q; },
      [](double, double) { return 1.0; }, [](double, double) { return 1.0; });
}
OpCase SubCase(Dims a, Dims b) {
  return BinaryCase(
      "Sub", a, b, [](double p, double q) { return p - q; },
      [](double, double) { return 1.0; }, [](double, double) { return -1.0; });
}
OpCase MulCase(Dims a, Dims b) {
  return BinaryCase(
      "Mul", a, b, [](double p, double q) { return p * q; },
      [](double, double q) { return q; }, [](double p, double) { return p; });
}
OpCase DivCase(Dims a, Dims b) {
  return BinaryCase(
      "Div", a, b, [](double p, double q) { return p / q; },
      [](double, double q) { return 1 / q; },
      [](double p, double q) { return -p / (q * q); });
}

OpCase ModCase(Dims a, Dims b) {
  OpCase c = BinaryCase(
      "Mod", a, b, [](double p, double q) { return std::fmod(p, q); },
      [](double, double) { return 1.0; },
      [](double p, double q) { return -std::trunc(p / q); });
  c.attributes["fmod"] = int64_t{1};
  return c;
}

}  // namespace

std::vector<OpCase> ArithmeticCases() {
  return {
      AddCase({4, 5}, {4, 5}),
      AddCase({4, 5}, {5}),
      AddCase({5}, {4, 5}),
      SubCase({4, 5}, {4, 5}),
      SubCase({2, 1, 3}, {4, 1}),
      SubCase({}, {4, 5}),
      MulCase({4, 5}, {4, 5}),
      MulCase({4, 5}, {4, 1}),
      MulCase({3}, {2, 3}),
      ModCase({4, 5}, {4, 5}),
      ModCase({4, 5}, {5}),
      DivCase({4, 5}, {4, 5}),
      DivCase({4, 5}, {}),
      DivCase({2, 3}, {4, 2, 3}),
      UnaryCase<reference::Relu>("Relu"),
      UnaryCase<reference::Sigmoid>("Sigmoid"),
      UnaryCase<reference::Tanh>("Tanh"),
      UnaryCase<reference::Gelu>("Gelu"),
      UnaryCase<reference::Gelu>("Gelu",
                                 {{"approximate", std::string("none")}}),
      UnaryCase<reference::GeluTanh>("Gelu",
                                     {{"approximate", std::string("tanh")}}),
  };
}

}  // namespace syncline::testing
