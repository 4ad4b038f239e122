// Rows of op_table_test for operators that change the size of planes, move
// channels into them, or compare neighbouring channels.

#include <algorithm>
#include <cmath>

#include "tests/testing/op_case.h"

namespace syncline::testing {
namespace {

using reference::Dims;
using Attributes = std::map<std::string, Attribute>;
using Function = std::function<double(double)>;

// One axis of a Resize: where a place of the result lies in the input.
struct ResizeAxis {
  int64_t in;
  int64_t out;
  Function origin;
};

// weights[o][i], straight from what the modes mean: what lies outside repeats
// the border.
using Matrix = std::vector<std::vector<double>>;

Matrix Weights(const ResizeAxis& axis, const Function& kernel, int64_t reach) {
  Matrix weights(axis.out, std::vector<double>(axis.in));
  for (int64_t o = 0; o < axis.out; ++o) {
    const double at = axis.origin(static_cast<double>(o));
    for (int64_t k = -reach; k < axis.in + reach; ++k) {
      const int64_t i = std::clamp<int64_t>(k, 0, axis.in - 1);
      weights[o][i] += kernel(static_cast<double>(k) - at);
    }
  }
  return weights;
}

Terms Products(const std::vector<Matrix>& axes, const Dims& in,
               const Dims& out) {
  Terms terms;
  for (int64_t o = 0; o < reference::Product(out); ++o) {
    for (int64_t i = 0; i < reference::Product(in); ++i) {
      const Dims to = reference::IndexOf(o, out);
      const Dims from = reference::IndexOf(i, in);
      double weight = 1;
      for (size_t d = 0; d < axes.size(); ++d) {
        weight *= axes[d].empty() ? (to[d] == from[d] ? 1.0 : 0.0)
                                  : axes[d][to[d]][from[d]];
      }
      if (weight != 0) terms.push_back({o, 0, i, weight});
    }
  }
  return terms;
}

// Of [2, 3, axes...]; by sizes, or by scales.
OpCase ResizeCase(Attributes attributes, const std::vector<ResizeAxis>& axes,
                  const Function& kernel, int64_t reach, bool by_sizes) {
  Dims in = {2, 3}, out = {2, 3};
  std::vector<Matrix> matrices(2);
  FixedInput scales = {2, {}, {1, 1}};
  for (const ResizeAxis& axis : axes) {
    in.push_back(axis.in);
    out.push_back(axis.out);
    matrices.push_back(Weights(axis, kernel, reach));
    scales.values.push_back(static_cast<float>(axis.out) /
                            static_cast<float>(axis.in));
  }
  scales.dims = {static_cast<int64_t>(in.size())};
  OpCase c = LinearCase("Resize", 19, std::move(attributes), {in}, {},
                        Products(matrices, in, out), out);
  c.fixed.push_back({1, {0}, {}});  // roi
  if (by_sizes) {
    c.fixed.push_back({2, {0}, {}});
    c.integers.push_back({3, {static_cast<int64_t>(in.size())}, out});
  } else {
    c.fixed.push_back(scales);
  }
  return c;
}

double Hat(double x) { return std::max(0.0, 1 - std::fabs(x)); }
double CubicKernel(double x) {
  const double a = -0.75;
  const double d = std::fabs(x);
  if (d <= 1) return (a + 2) * d * d * d - (a + 3) * d * d + 1;
  return d < 2 ? a * (d * d * d - 5 * d * d + 8 * d - 4) : 0;
}
double At(double x) { return std::fabs(x) < 1e-9; }

Function Middle(double scale) {
  return [=](double o) { return (o + 0.5) / scale - 0.5; };
}

void AddResizeCases(std::vector<OpCase>* cases) {
  const std::string mode = "coordinate_transformation_mode";
  const auto floor_of = [](double scale) {
    return [=](double o) { return std::floor(o / scale); };
  };
  for (const bool by_sizes : {false, true}) {
    // The node that PyTorch's exporter writes for Upsample(mode="nearest").
    cases->push_back(ResizeCase({{"mode", std::string("nearest")},
                                 {mode, std::string("asymmetric")},
                                 {"nearest_mode", std::string("floor")}},
                                {{3, 6, floor_of(2)}, {2, 6, floor_of(3)}}, At,
                                0, by_sizes));
    cases->push_back(ResizeCase({{"mode", std::string("nearest")},
                                 {mode, std::string("asymmetric")},
                                 {"nearest_mode", std::string("floor")}},
                                {{6, 3, floor_of(0.5)}}, At, 0, by_sizes));
    // "bilinear", with and without align_corners.
    cases->push_back(ResizeCase({{"mode", std::string("linear")},
                                 {mode, std::string("pytorch_half_pixel")}},
                                {{3, 6, Middle(2)}, {4, 2, Middle(0.5)}}, Hat,
                                2, by_sizes));
    cases->push_back(ResizeCase(
        {{"mode", std::string("linear")}, {mode, std::string("align_corners")}},
        {{3, 6, [](double o) { return o * 2 / 5; }},
         {4, 2, [](double o) { return o * 3; }}},
        Hat, 2, by_sizes));
    cases->push_back(ResizeCase(
        {{"mode", std::string("cubic")}, {mode, std::string("half_pixel")}},
        {{4, 8, Middle(2)}, {6, 3, Middle(0.5)}}, CubicKernel, 4, by_sizes));
  }
  // Three axes, and one of which only one place is left.
  cases->push_back(ResizeCase(
      {{"mode", std::string("linear")}},
      {{2, 4, Middle(2)}, {2, 2, Middle(1)}, {3, 6, Middle(2)}}, Hat, 2, true));
  cases->push_back(ResizeCase({{"mode", std::string("linear")},
                               {mode, std::string("pytorch_half_pixel")}},
                              {{3, 1, [](double) { return 0.0; }}}, Hat, 2,
                              true));
  cases->push_back(ResizeCase(
      {{"mode", std::string("linear")}, {"antialias", int64_t{1}}},
      {{8, 4, Middle(0.5)}}, [](double x) { return Hat(x / 2) / 2; }, 2, true));
}

// [2, 8, 3, 2] to [2, 2, 6, 4], or back; where the channel and the place in a
// block are among the channels.
OpCase BlocksCase(const std::string& op_type, const std::string& mode) {
  const Dims deep = {2, 8, 3, 2}, wide = {2, 2, 6, 4};
  const bool to_space = op_type == "DepthToSpace";
  Terms terms;
  for (int64_t flat = 0; flat < reference::Product(wide); ++flat) {
    const Dims at = reference::IndexOf(flat, wide);
    const int64_t block = at[2] % 2 * 2 + at[3] % 2;
    const int64_t channel =
        mode == "CRD" ? at[1] * 4 + block : block * 2 + at[1];
    const int64_t other =
        ((at[0] * 8 + channel) * 3 + at[2] / 2) * 2 + at[3] / 2;
    terms.push_back(to_space ? reference::Term{flat, 0, other}
                             : reference::Term{other, 0, flat});
  }
  Attributes attributes = {{"blocksize", int64_t{2}}};
  if (to_space) attributes["mode"] = mode;
  return LinearCase(op_type, 13, attributes, {to_space ? deep : wide}, {},
                    terms, to_space ? wide : deep);
}

OpCase ResponseCase(Dims dims, int64_t size, float alpha, float beta,
                    float bias) {
  OpCase c;
  c.op_type = "LRN";
  c.version = 13;
  c.attributes = {
      {"size", size}, {"alpha", alpha}, {"beta", beta}, {"bias", bias}};
  c.inputs = {dims};
  c.forward = [=](const Inputs& in) {
    const DoubleArray& x = in[0];
    DoubleArray y(x.dims);
    const int64_t channels = dims[1];
    const int64_t plane = reference::Product(dims) / (dims[0] * channels);
    for (size_t i = 0; i < x.values.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const int64_t channel = at / plane % channels;
      double sum = 0;
      for (int64_t k = channel - (size - 1) / 2; k <= channel + size / 2; ++k) {
        if (k < 0 || k >= channels) continue;
        const double v = x.values[at + (k - channel) * plane];
        sum += v * v;
      }
      y.values[i] =
          x.values[i] * std::pow(bias + alpha / static_cast<double>(size) * sum,
                                 -static_cast<double>(beta));
    }
    return y;
  };
  c.gradient = [forward = c.forward](const Inputs& in, const DoubleArray& dy) {
    return DifferencesOf(forward, in, dy);
  };
  return c;
}

}  // namespace

std::vector<OpCase> ImageCases() {
  std::vector<OpCase> cases = {BlocksCase("DepthToSpace", "DCR"),
                               BlocksCase("DepthToSpace", "CRD"),
                               BlocksCase("SpaceToDepth", "DCR"),
                               // AlexNet's, with an alpha that shows.
                               ResponseCase({2, 7, 3, 2}, 5, 0.5f, 0.75f, 2),
                               ResponseCase({2, 4, 3}, 2, 0.5f, 0.5f, 1),
                               ResponseCase({3, 3}, 9, 0.25f, 1, 1),
                               ResponseCase({1, 5, 2, 2}, 3, 0.3f, 0.6f, 1.5f)};
  AddResizeCases(&cases);
  return cases;
}

}  // namespace syncline::testing
