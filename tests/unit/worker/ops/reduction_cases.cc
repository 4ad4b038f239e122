// Rows of op_table_test for reductions that are no sum or mean of their input.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/testing/op_case.h"

namespace syncline::testing {
namespace {

using reference::Dims;

// A reduction's result for one list of values, and its gradient.
struct Reducer {
  std::string op_type;
  std::function<double(const std::vector<double>&)> value;
  std::function<std::vector<double>(const std::vector<double>&)> gradient;
  bool positive = false;
};

// Where the values of each element of the result are.
std::vector<std::vector<int64_t>> Groups(const Dims& data, const Dims& kept) {
  std::vector<std::vector<int64_t>> groups(reference::Product(kept));
  for (int64_t i = 0; i < reference::Product(data); ++i) {
    groups[reference::BroadcastOffset(i, data, kept)].push_back(i);
  }
  return groups;
}

std::vector<double> ValuesAt(const DoubleArray& x,
                             const std::vector<int64_t>& at) {
  std::vector<double> values;
  for (const int64_t i : at) values.push_back(x.values[i]);
  return values;
}

// Dimensions `axes` of the data become 1.
OpCase ReduceCase(const Reducer& r, Dims data, std::vector<int64_t> axes,
                  bool as_input) {
  Dims kept = data;
  for (const int64_t axis : axes) kept[axis] = 1;
  const auto groups = Groups(data, kept);
  OpCase c;
  c.op_type = r.op_type;
  c.version = as_input ? 18 : 13;
  c.inputs = {data};
  c.positive = r.positive;
  if (as_input) {
    c.integers = {{1, {static_cast<int64_t>(axes.size())}, axes}};
  } else {
    c.attributes = {{"axes", axes}};
  }
  c.forward = [=](const Inputs& in) {
    DoubleArray y(kept);
    for (size_t o = 0; o < groups.size(); ++o) {
      y.values[o] = r.value(ValuesAt(in[0], groups[o]));
    }
    return y;
  };
  c.gradient = [=](const Inputs& in, const DoubleArray& dy) {
    DoubleArray dx(data);
    for (size_t o = 0; o < groups.size(); ++o) {
      const auto d = r.gradient(ValuesAt(in[0], groups[o]));
      for (size_t k = 0; k < d.size(); ++k) {
        dx.values[groups[o][k]] += d[k] * dy.values[o];
      }
    }
    return Gradients{dx};
  };
  return c;
}

// A sum of term(x), and result(sum); `by` is the derivative by x, given x and
// the result.
Reducer Mapped(std::string op_type, double (*term)(double),
               double (*result)(double), double (*by)(double, double),
               bool positive = false) {
  const auto value = [=](const std::vector<double>& x) {
    double sum = 0;
    for (const double v : x) sum += term(v);
    return result(sum);
  };
  return {std::move(op_type), value,
          [=](const std::vector<double>& x) {
            std::vector<double> d;
            for (const double v : x) d.push_back(by(v, value(x)));
            return d;
          },
          positive};
}

Reducer Extremum(std::string op_type, double sign) {
  const auto at = [=](const std::vector<double>& x) {
    return std::max_element(
               x.begin(), x.end(),
               [=](double a, double b) { return sign * a < sign * b; }) -
           x.begin();
  };
  return {std::move(op_type),
          [=](const std::vector<double>& x) { return x[at(x)]; },
          [=](const std::vector<double>& x) {
            std::vector<double> d(x.size(), 0);
            d[at(x)] = 1;
            return d;
          }};
}

Reducer Prod() {
  const auto product = [](const std::vector<double>& x) {
    return std::accumulate(x.begin(), x.end(), 1.0, std::multiplies<>());
  };
  return {"ReduceProd", product, [=](std::vector<double> x) {
            std::vector<double> d;
            for (double& v : x) {
              const double kept = std::exchange(v, 1);
              d.push_back(product(x));
              v = kept;
            }
            return d;
          }};
}

}  // namespace

std::vector<OpCase> ReductionCases() {
  const auto same = [](double v) { return v; };
  const auto squared = [](double v) { return v * v; };
  const auto root = [](double v) { return std::sqrt(v); };
  const auto log = [](double v) { return std::log(v); };
  const Reducer reducers[] = {
      Extremum("ReduceMax", 1),
      Extremum("ReduceMin", -1),
      Prod(),
      Mapped(
          "ReduceL1", [](double v) { return std::fabs(v); }, same,
          [](double x, double) { return x < 0 ? -1.0 : 1.0; }),
      Mapped("ReduceL2", squared, root,
             [](double x, double y) { return x / y; }),
      Mapped("ReduceSumSquare", squared, same,
             [](double x, double) { return 2 * x; }),
      Mapped(
          "ReduceLogSum", same, log,
          [](double, double y) { return std::exp(-y); }, /*positive=*/true),
      Mapped(
          "ReduceLogSumExp", [](double v) { return std::exp(v); }, log,
          [](double x, double y) { return std::exp(x - y); }),
  };
  std::vector<OpCase> cases;
  for (const Reducer& r : reducers) {
    for (const bool as_input : {false, true}) {
      cases.push_back(ReduceCase(r, {4, 9}, {1}, as_input));
      cases.push_back(ReduceCase(r, {4, 9}, {0}, as_input));
      cases.push_back(ReduceCase(r, {2, 3, 4}, {1}, as_input));
      cases.push_back(ReduceCase(r, {2, 3, 4}, {0, 2}, as_input));
    }
  }
  return cases;
}

}  // namespace syncline::testing
