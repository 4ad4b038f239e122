// Rows of the operator table for what sequence models add: the pieces that
// exporters make normalisations and activations of, normalisations, and what
// moves elements.

#include <cmath>

#include "kernels/reference/reference_layer_norm.h"
#include "kernels/reference/reference_pointwise.h"
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

OpCase LayerNormCase(Dims data, int64_t axis, bool bias,
                     double epsilon = 1e-5) {
  reference::LayerNormAttributes a;
  a.axis = axis < 0 ? axis + data.size() : axis;
  a.epsilon = static_cast<float>(epsilon);
  const Dims row(data.begin() + a.axis, data.end());
  OpCase c;
  c.op_type = "LayerNormalization";
  c.version = 17;
  c.attributes = {{"axis", axis}, {"epsilon", static_cast<float>(epsilon)}};
  c.inputs = {data, row};
  if (bias) c.inputs.push_back(row);
  c.forward = [=](const Inputs& in) { return reference::LayerNorm(a, in); };
  c.gradient = [=](const Inputs& in, const DoubleArray& dy) {
    return reference::LayerNormGradient(a, in, dy);
  };
  return c;
}

OpCase RmsNormCase(Dims data, int64_t axis) {
  OpCase c = LayerNormCase(data, axis, /*bias=*/false);
  reference::LayerNormAttributes a;
  a.axis = axis < 0 ? axis + data.size() : axis;
  a.epsilon = 1e-5f;
  a.centred = false;
  c.op_type = "RMSNormalization";
  c.version = 23;
  c.forward = [=](const Inputs& in) { return reference::LayerNorm(a, in); };
  c.gradient = [=](const Inputs& in, const DoubleArray& dy) {
    return reference::LayerNormGradient(a, in, dy);
  };
  return c;
}

// Element `out` of the result is the element of the data at from(index).
template <typename From>
Terms MovedTerms(const Dims& data, const Dims& out, From from) {
  Terms terms;
  for (int64_t o = 0; o < reference::Product(out); ++o) {
    const Dims at = from(reference::IndexOf(o, out));
    if (!at.empty() || data.empty()) {
      terms.push_back({o, 0, reference::FlatOf(at, data)});
    }
  }
  return terms;
}

IntegerInput List(size_t position, std::vector<int64_t> values) {
  return {position, {static_cast<int64_t>(values.size())}, values};
}

// One axis; `first` and `out` say what numpy makes of the numbers.
OpCase SliceCase(Dims data, size_t axis, int64_t start, int64_t end,
                 int64_t step, int64_t first, int64_t count) {
  Dims out = data;
  out[axis] = count;
  return LinearCase("Slice", 13, {}, {data},
                    {List(1, {start}), List(2, {end}),
                     List(3, {static_cast<int64_t>(axis)}), List(4, {step})},
                    MovedTerms(data, out,
                               [=](Dims at) {
                                 at[axis] = first + at[axis] * step;
                                 return at;
                               }),
                    out);
}

OpCase SliceOfTwoCase() {
  const Dims out = {2, 2};
  return LinearCase("Slice", 13, {}, {{4, 5}},
                    {List(1, {1, -2}), List(2, {3, INT64_MAX})},
                    MovedTerms({4, 5}, out,
                               [](const Dims& at) {
                                 return Dims{at[0] + 1, at[1] + 3};
                               }),
                    out);
}

OpCase ExpandCase(Dims data, Dims shape, Dims out) {
  Terms terms;
  for (int64_t o = 0; o < reference::Product(out); ++o) {
    terms.push_back({o, 0, reference::BroadcastOffset(o, out, data)});
  }
  return LinearCase("Expand", 13, {}, {data}, {List(1, shape)}, terms, out);
}

OpCase TileCase(Dims data, std::vector<int64_t> repeats) {
  Dims out = data;
  for (size_t d = 0; d < out.size(); ++d) out[d] *= repeats[d];
  return LinearCase("Tile", 13, {}, {data}, {List(1, repeats)},
                    MovedTerms(data, out,
                               [=](Dims at) {
                                 for (size_t d = 0; d < at.size(); ++d) {
                                   at[d] %= data[d];
                                 }
                                 return at;
                               }),
                    out);
}

OpCase TriluCase(Dims data, bool upper, std::vector<int64_t> k) {
  const int64_t diagonal = k.empty() ? 0 : k[0];
  std::vector<IntegerInput> integers;
  if (!k.empty()) integers.push_back({1, {}, k});
  return LinearCase("Trilu", 14, {{"upper", int64_t{upper}}}, {data}, integers,
                    MovedTerms(data, data,
                               [=](const Dims& at) {
                                 const int64_t above =
                                     at.back() - at[at.size() - 2];
                                 const bool kept = upper ? above >= diagonal
                                                         : above <= diagonal;
                                 return kept ? at : Dims();
                               }),
                    data);
}

OpCase WhereCase(Dims condition, std::vector<int64_t> chosen, Dims a, Dims b) {
  const Dims out =
      reference::BroadcastTo(reference::BroadcastTo(condition, a), b);
  Terms terms;
  for (int64_t o = 0; o < reference::Product(out); ++o) {
    const bool first =
        chosen[reference::BroadcastOffset(o, out, condition)] != 0;
    terms.push_back({o, first ? 0u : 1u,
                     reference::BroadcastOffset(o, out, first ? a : b)});
  }
  return LinearCase("Where", 16, {}, {a, b},
                    {{0, condition, chosen, DType::kBool}}, terms, out);
}

// All outputs but the first are not asked for: copies_test has the others.
OpCase SplitCase() {
  return LinearCase("Split", 13, {{"axis", int64_t{1}}}, {{2, 3}}, {},
                    MovedTerms({2, 3}, {2, 3}, [](Dims at) { return at; }),
                    {2, 3});
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
      LayerNormCase({3, 5}, -1, true),
      LayerNormCase({3, 5}, -1, false),
      LayerNormCase({2, 3, 4}, 1, true),
      LayerNormCase({2, 3, 9}, -1, true, 0.5),
      LayerNormCase({2, 3}, 0, true),
      RmsNormCase({3, 5}, -1),
      RmsNormCase({2, 3, 4}, 1),
      SliceCase({4, 5}, 0, 1, 3, 1, 1, 2),
      SliceCase({4, 5}, 1, 0, 5, 2, 0, 3),
      SliceCase({4, 5}, 1, 1, 5, 3, 1, 2),
      SliceCase({4, 5}, 1, -1, INT64_MIN, -1, 4, 5),
      SliceCase({4, 5}, 1, 3, 0, -2, 3, 2),
      SliceCase({4, 5}, 0, 2, 1000, 1, 2, 2),
      SliceCase({4, 5}, 0, -100, -3, 1, 0, 1),
      SliceCase({2, 3, 4}, 1, 2, 1, 1, 0, 0),
      SliceOfTwoCase(),
      SplitCase(),
      ExpandCase({3, 1}, {3, 4}, {3, 4}),
      ExpandCase({3, 1}, {2, 1, 6}, {2, 3, 6}),
      ExpandCase({1, 3}, {2, 3}, {2, 3}),
      ExpandCase({}, {2, 2}, {2, 2}),
      TileCase({2, 3}, {2, 1}),
      TileCase({2, 3}, {2, 2}),
      TileCase({2, 1, 3}, {1, 4, 2}),
      TriluCase({3, 4}, true, {}),
      TriluCase({4, 3}, false, {}),
      TriluCase({2, 3, 3}, true, {1}),
      TriluCase({2, 3, 3}, false, {-1}),
      TriluCase({2, 3}, false, {-100}),
      WhereCase({2, 3}, {1, 0, 1, 0, 0, 1}, {2, 3}, {2, 3}),
      WhereCase({3}, {1, 0, 1}, {2, 3}, {}),
      WhereCase({2, 1}, {0, 1}, {3}, {2, 3}),
      WhereCase({2, 1, 2}, {0, 1, 1, 0}, {3, 1}, {2}),
  };
}

}  // namespace syncline::testing
