// Rows of op_table_test for what puts elements into another array, or around
// one: ScatterElements, ScatterND that replaces, Pad.

#include "tests/testing/op_case.h"

namespace syncline::testing {
namespace {

using reference::Dims;

// Run `i` of the updates goes to places[i] and what follows; `adds` says
// whether to what is there. Of runs that replace one place the last counts.
OpCase ScatterCase(std::string op_type,
                   std::map<std::string, Attribute> attributes, Dims data,
                   IntegerInput indices, Dims updates,
                   const std::vector<int64_t>& places, bool adds) {
  const int64_t count = reference::Product(data);
  const int64_t updated = reference::Product(updates);
  const int64_t run =
      places.empty() ? 0 : updated / static_cast<int64_t>(places.size());
  std::vector<int64_t> from(count, -1);
  Terms terms;
  for (int64_t u = 0; u < updated; ++u) {
    const int64_t at = places[u / run] + u % run;
    from[at] = u;
    if (adds) terms.push_back({at, 1, u});
  }
  for (int64_t o = 0; o < count; ++o) {
    if (adds || from[o] < 0) {
      terms.push_back({o, 0, o});
    } else {
      terms.push_back({o, 1, from[o]});
    }
  }
  attributes["reduction"] = std::string(adds ? "add" : "none");
  return LinearCase(std::move(op_type), 18, attributes, {data, updates},
                    {indices}, terms, data);
}

OpCase ScatterElementsCase(Dims data, int64_t axis, Dims dims,
                           std::vector<int64_t> indices, bool adds,
                           DType dtype = DType::kInt64) {
  const size_t along = axis < 0 ? axis + data.size() : axis;
  std::vector<int64_t> places;
  for (size_t i = 0; i < indices.size(); ++i) {
    Dims at = reference::IndexOf(i, dims);
    at[along] = indices[i] < 0 ? indices[i] + data[along] : indices[i];
    places.push_back(reference::FlatOf(at, data));
  }
  return ScatterCase("ScatterElements", {{"axis", axis}}, data,
                     {1, dims, indices, dtype}, dims, places, adds);
}

double Reduce(const std::string& reduction, double a, double b) {
  if (reduction == "mul") return a * b;
  return reduction == "max" ? std::max(a, b) : std::min(a, b);
}

// As ScatterCase, where run `i` is reduced with what is at places[i].
OpCase ReductionCase(std::string op_type, const std::string& reduction,
                     Dims data, IntegerInput indices, Dims updates,
                     std::vector<int64_t> places) {
  OpCase c;
  c.op_type = std::move(op_type);
  c.version = 18;
  c.attributes = {{"reduction", reduction}};
  c.inputs = {data, updates};
  c.integers = {std::move(indices)};
  c.forward = [=](const Inputs& in) {
    DoubleArray y = in[0];
    const size_t count = in[1].values.size();
    const size_t run = places.empty() ? 1 : count / places.size();
    for (size_t u = 0; u < count; ++u) {
      double& to = y.values[places[u / run] + u % run];
      to = Reduce(reduction, to, in[1].values[u]);
    }
    return y;
  };
  c.gradient = [forward = c.forward](const Inputs& given,
                                     const DoubleArray& dy) {
    return DifferencesOf(forward, given, dy);
  };
  return c;
}

// The element of a dimension of n that padding has at i: of what `mode` repeats
// in place of those outside; -1: the constant.
int64_t PaddedFrom(const std::string& mode, int64_t i, int64_t n) {
  if (i >= 0 && i < n) return i;
  if (mode == "constant") return -1;
  if (mode == "edge") return i < 0 ? 0 : n - 1;
  if (mode == "wrap") return (i % n + n) % n;
  while (i < 0 || i >= n) i = i < 0 ? -i : 2 * (n - 1) - i;
  return i;
}

// Negative pads crop first. `axes`: empty for all.
OpCase PadCase(const std::string& mode, Dims data, std::vector<int64_t> pads,
               std::vector<int64_t> axes = {}, float constant = 0) {
  const bool named = !axes.empty();
  for (size_t d = 0; !named && d < data.size(); ++d) axes.push_back(d);
  Dims before(data.size(), 0), out = data, left = data;
  for (size_t i = 0; i < axes.size(); ++i) {
    before[axes[i]] = pads[i];
    const int64_t after = pads[axes.size() + i];
    out[axes[i]] += pads[i] + after;
    left[axes[i]] +=
        std::min<int64_t>(pads[i], 0) + std::min<int64_t>(after, 0);
  }
  Terms terms;
  std::vector<bool> constants(reference::Product(out), false);
  for (int64_t o = 0; o < reference::Product(out); ++o) {
    Dims at = reference::IndexOf(o, out);
    for (size_t d = 0; d < at.size(); ++d) {
      const int64_t i =
          PaddedFrom(mode, at[d] - std::max<int64_t>(before[d], 0), left[d]);
      if (i < 0) constants[o] = true;
      at[d] = i + std::max<int64_t>(-before[d], 0);
    }
    if (!constants[o]) terms.push_back({o, 0, reference::FlatOf(at, data)});
  }
  const auto size = [](const std::vector<int64_t>& list) {
    return static_cast<int64_t>(list.size());
  };
  std::vector<IntegerInput> integers = {{1, {size(pads)}, pads}};
  if (named) integers.push_back({3, {size(axes)}, axes});
  OpCase c =
      LinearCase("Pad", 18, {{"mode", mode}}, {data}, integers, terms, out);
  c.fixed = {{2, {}, {constant}}};
  c.forward = [=](const Inputs& in) {
    DoubleArray y = reference::Linear(terms, out, in);
    for (size_t o = 0; o < constants.size(); ++o) {
      if (constants[o]) y.values[o] = constant;
    }
    return y;
  };
  return c;
}

}  // namespace

std::vector<OpCase> ScatterCases() {
  std::vector<OpCase> cases;
  for (const bool adds : {false, true}) {
    cases.push_back(
        ScatterElementsCase({3, 3}, 0, {2, 3}, {1, 0, 2, 0, 2, 1}, adds));
    cases.push_back(ScatterElementsCase({2, 5}, -1, {1, 3}, {1, -1, 1}, adds));
    cases.push_back(ScatterElementsCase({2, 3, 2}, 1, {2, 2, 1}, {0, 2, 1, 1},
                                        adds, DType::kInt32));
    cases.push_back(ScatterElementsCase({4}, 0, {0}, {}, adds));
    cases.push_back(ScatterElementsCase({5}, 0, {4}, {2, 2, 0, 2}, adds));
    cases.push_back(ScatterCase("ScatterND", {}, {4, 3},
                                {1, {3, 1}, {2, 0, -2}}, {3, 3}, {6, 0, 6},
                                adds));
    cases.push_back(ScatterCase("ScatterND", {}, {2, 3},
                                {1, {2, 2}, {0, 1, 1, 2}}, {2}, {1, 5}, adds));
  }
  for (const char* reduction : {"mul", "max", "min"}) {
    cases.push_back(ReductionCase("ScatterElements", reduction, {5},
                                  {1, {4}, {2, 2, 0, -3}}, {4}, {2, 2, 0, 2}));
    cases.push_back(ReductionCase("ScatterElements", reduction, {4},
                                  {1, {0}, {}}, {0}, {}));
    cases.push_back(ReductionCase("ScatterND", reduction, {4, 3},
                                  {1, {3, 1}, {2, 0, -2}}, {3, 3}, {6, 0, 6}));
    cases.push_back(ReductionCase("ScatterND", reduction, {2, 3},
                                  {1, {2, 2}, {0, 1, 1, 2}}, {2}, {1, 5}));
  }
  for (const char* mode : {"constant", "edge", "reflect", "wrap"}) {
    cases.push_back(PadCase(mode, {4, 5}, {1, 2, 3, 1}));
    cases.push_back(PadCase(mode, {4, 5}, {0, 1, 2, 0}, {}, 1.5f));
    cases.push_back(PadCase(mode, {4, 5}, {-1, 2, 1, -2}));
    cases.push_back(PadCase(mode, {2, 3, 4}, {2, 1}, {2}));
    cases.push_back(PadCase(mode, {2, 3, 4}, {1, 2, 1, 0}, {2, 0}));
    cases.push_back(PadCase(mode, {3, 2}, {5, 0, 4, 3}));
    cases.push_back(PadCase(mode, {}, {}));
  }
  cases.push_back(PadCase("constant", {4, 5}, {-2, 0, -2, 1}));
  return cases;
}

}  // namespace syncline::testing
