// Rows of op_table_test for what combines several inputs of one shape, or lays
// bounds over one, element by element.

#include <algorithm>
#include <limits>
#include <numeric>

#include "tests/testing/op_case.h"

namespace syncline::testing {
namespace {

using reference::Dims;

OpCase PReluCase(Dims x, Dims slope) {
  return BinaryCase(
      "PRelu", x, slope, [](double v, double k) { return v < 0 ? k * v : v; },
      [](double v, double k) { return v < 0 ? k : 1; },
      [](double v, double) { return v < 0 ? v : 0; });
}

// An infinite `high` is not given.
OpCase ClipCase(float low, float high) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  OpCase c;
  c.op_type = "Clip";
  c.version = 13;
  c.inputs = {{5, 7}};
  c.fixed = {{1, {}, {low}}};
  if (high != kInfinity) c.fixed.push_back({2, {}, {high}});
  c.forward = [=](const Inputs& in) {
    DoubleArray y = in[0];
    for (double& v : y.values) {
      v = std::min<double>(std::max<double>(v, low), high);
    }
    return y;
  };
  c.gradient = [=](const Inputs& in, const DoubleArray& dy) {
    DoubleArray dx = dy;
    for (size_t i = 0; i < dx.values.size(); ++i) {
      const double v = in[0].values[i];
      if (v < low || v > high) dx.values[i] = 0;
    }
    return Gradients{dx};
  };
  return c;
}

// Weights of the inputs in one element of the result, from their values there.
using Weigh = std::vector<double> (*)(const std::vector<double>& values);

OpCase CombinationCase(std::string op_type, std::vector<Dims> inputs,
                       Weigh weigh) {
  Dims out;
  for (const Dims& dims : inputs) out = reference::BroadcastTo(out, dims);
  const auto weights_at = [=](const Inputs& in, int64_t o) {
    std::vector<double> values;
    for (const DoubleArray& x : in) {
      values.push_back(x.values[reference::BroadcastOffset(o, out, x.dims)]);
    }
    return weigh(values);
  };
  OpCase c;
  c.op_type = std::move(op_type);
  c.version = 13;
  c.inputs = inputs;
  c.forward = [=](const Inputs& in) {
    DoubleArray y(out);
    for (size_t o = 0; o < y.values.size(); ++o) {
      const std::vector<double> weights = weights_at(in, o);
      for (size_t i = 0; i < in.size(); ++i) {
        y.values[o] +=
            weights[i] *
            in[i].values[reference::BroadcastOffset(o, out, in[i].dims)];
      }
    }
    return y;
  };
  c.gradient = [=](const Inputs& in, const DoubleArray& dy) {
    Gradients dx;
    for (const DoubleArray& x : in) dx.emplace_back(x.dims);
    for (size_t o = 0; o < dy.values.size(); ++o) {
      const std::vector<double> weights = weights_at(in, o);
      for (size_t i = 0; i < in.size(); ++i) {
        dx[i].values[reference::BroadcastOffset(o, out, in[i].dims)] +=
            weights[i] * dy.values[o];
      }
    }
    return dx;
  };
  return c;
}

std::vector<double> All(const std::vector<double>& values) {
  return std::vector<double>(values.size(), 1);
}

std::vector<double> Equal(const std::vector<double>& values) {
  return std::vector<double>(values.size(), 1.0 / values.size());
}

template <typename Position>
std::vector<double> Only(const std::vector<double>& values, Position at) {
  std::vector<double> weights(values.size(), 0);
  weights[at - values.begin()] = 1;
  return weights;
}

std::vector<double> Largest(const std::vector<double>& values) {
  return Only(values, std::max_element(values.begin(), values.end()));
}

std::vector<double> Smallest(const std::vector<double>& values) {
  return Only(values, std::min_element(values.begin(), values.end()));
}

}  // namespace

std::vector<OpCase> CombinationCases() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<OpCase> cases = {
      PReluCase({4, 5}, {4, 5}),    PReluCase({4, 5}, {5}),
      PReluCase({2, 3, 4}, {3, 1}), PReluCase({4, 5}, {}),
      ClipCase(-0.5f, 0.75f),       ClipCase(-kInfinity, 0.5f),
      ClipCase(0.25f, kInfinity),   ClipCase(0.75f, 0.5f),
  };
  const std::pair<const char*, Weigh> kinds[] = {
      {"Sum", All}, {"Mean", Equal}, {"Max", Largest}, {"Min", Smallest}};
  for (const auto& [op, weigh] : kinds) {
    cases.push_back(CombinationCase(op, {{4, 5}}, weigh));
    cases.push_back(CombinationCase(op, {{4, 5}, {4, 5}}, weigh));
    cases.push_back(CombinationCase(op, {{4, 5}, {5}, {}, {4, 1}}, weigh));
    cases.push_back(CombinationCase(op, {{3}, {2, 1, 1}, {4, 1}}, weigh));
    // More than a machine word has bits.
    std::vector<Dims> many(70, {2, 3});
    many[20] = many[69] = {3};
    cases.push_back(CombinationCase(op, many, weigh));
  }
  return cases;
}

}  // namespace syncline::testing
