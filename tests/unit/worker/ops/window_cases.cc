// Rows of op_table_test for operators that slide a window over planes.

#include "kernels/reference/reference_window.h"
#include "tests/testing/op_case.h"

namespace syncline::testing {
namespace {

using reference::Dims;
using Attributes = std::map<std::string, Attribute>;

struct AxisSetting {
  int64_t in;
  int64_t kernel;
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t pad_begin = 0;
  int64_t pad_end = 0;
};

Window WindowOf(const std::vector<AxisSetting>& axes, bool ceil = false) {
  Window window;
  for (const AxisSetting& a : axes) {
    Window::Axis axis = {.in = a.in,
                         .kernel = a.kernel,
                         .stride = a.stride,
                         .dilation = a.dilation,
                         .pad_begin = a.pad_begin,
                         .pad_end = a.pad_end};
    const int64_t room = a.in + a.pad_begin + a.pad_end - axis.span();
    axis.out = (room + (ceil ? a.stride - 1 : 0)) / a.stride + 1;
    window.axes.push_back(axis);
  }
  return window;
}

Dims Per(const Window& window, int64_t Window::Axis::*member) {
  Dims dims;
  for (const Window::Axis& axis : window.axes) dims.push_back(axis.*member);
  return dims;
}

Dims Joined(Dims a, const Dims& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Attributes AttributesOf(const Window& window, const std::string& auto_pad) {
  Attributes attributes = {
      {"strides", Per(window, &Window::Axis::stride)},
      {"dilations", Per(window, &Window::Axis::dilation)},
      {"kernel_shape", Per(window, &Window::Axis::kernel)}};
  if (auto_pad.empty()) {
    attributes["pads"] = Joined(Per(window, &Window::Axis::pad_begin),
                                Per(window, &Window::Axis::pad_end));
  } else {
    attributes["auto_pad"] = auto_pad;
  }
  return attributes;
}

struct ConvSetting {
  int64_t batch = 2;
  int64_t channels = 2;
  int64_t filters = 3;
  int64_t groups = 1;
  bool bias = true;
  std::string auto_pad = "";  // with pads in the window all the same
};

OpCase ConvCase(const ConvSetting& s, const std::vector<AxisSetting>& axes) {
  const Window window = WindowOf(axes);
  const Dims x = Joined({s.batch, s.channels}, Per(window, &Window::Axis::in));
  const Dims w = Joined({s.filters, s.channels / s.groups},
                        Per(window, &Window::Axis::kernel));
  const Dims y = Joined({s.batch, s.filters}, Per(window, &Window::Axis::out));
  Attributes attributes = AttributesOf(window, s.auto_pad);
  attributes["group"] = s.groups;
  std::vector<Dims> inputs = {x, w};
  if (s.bias) inputs.push_back({s.filters});
  const auto products = reference::ConvolutionProducts(x, w, s.groups, window);
  return {
      "Conv",
      11,
      attributes,
      inputs,
      [=](const Inputs& in) { return reference::Convolve(products, y, in); },
      [=](const Inputs& in, const DoubleArray& dy) {
        return reference::ConvolveGradient(products, in, dy);
      }};
}

// The window is that of the convolution back from y, `channels`, to x,
// `filters`; output_padding is what its last window leaves of y.
OpCase ConvTransposeCase(const ConvSetting& s,
                         const std::vector<AxisSetting>& axes,
                         Attributes more = {}) {
  Window window = WindowOf(axes);
  const Dims x = Joined({s.batch, s.filters}, Per(window, &Window::Axis::out));
  const Dims w = Joined({s.filters, s.channels / s.groups},
                        Per(window, &Window::Axis::kernel));
  const Dims y = Joined({s.batch, s.channels}, Per(window, &Window::Axis::in));
  Attributes attributes = AttributesOf(window, s.auto_pad);
  attributes["group"] = s.groups;
  Dims left;
  for (const Window::Axis& a : window.axes) {
    left.push_back(a.in + a.pad_begin + a.pad_end - a.span() -
                   (a.out - 1) * a.stride);
  }
  if (s.auto_pad.empty()) attributes["output_padding"] = left;
  for (const auto& [name, value] : more) attributes[name] = value;
  std::vector<Dims> inputs = {x, w};
  if (s.bias) inputs.push_back({s.channels});
  const auto products = reference::Exchanged(
      reference::ConvolutionProducts(y, w, s.groups, window));
  return {
      "ConvTranspose",
      11,
      attributes,
      inputs,
      [=](const Inputs& in) { return reference::Convolve(products, y, in); },
      [=](const Inputs& in, const DoubleArray& dy) {
        return reference::ConvolveGradient(products, in, dy);
      }};
}

OpCase MaxPoolCase(const std::vector<AxisSetting>& axes, bool ceil = false,
                   const std::string& auto_pad = "") {
  const Window window = WindowOf(axes, ceil);
  const Dims x = Joined({2, 3}, Per(window, &Window::Axis::in));
  const Dims y = Joined({2, 3}, Per(window, &Window::Axis::out));
  Attributes attributes = AttributesOf(window, auto_pad);
  attributes["ceil_mode"] = int64_t{ceil};
  return {"MaxPool",
          12,
          attributes,
          {x},
          [=](const Inputs& in) {
            return reference::Linear(reference::MaxPoolTerms(window, in[0]), y,
                                     in);
          },
          [=](const Inputs& in, const DoubleArray& dy) {
            return reference::LinearGradient(
                reference::MaxPoolTerms(window, in[0]), in, dy);
          }};
}

OpCase AveragePoolCase(const std::vector<AxisSetting>& axes, bool include_pad,
                       bool ceil = false, const std::string& auto_pad = "") {
  const Window window = WindowOf(axes, ceil);
  const Dims x = Joined({2, 3}, Per(window, &Window::Axis::in));
  const Dims y = Joined({2, 3}, Per(window, &Window::Axis::out));
  Attributes attributes = AttributesOf(window, auto_pad);
  attributes["ceil_mode"] = int64_t{ceil};
  attributes["count_include_pad"] = int64_t{include_pad};
  return LinearCase("AveragePool", 19, attributes, {x}, {},
                    reference::AveragePoolTerms(window, 6, include_pad), y);
}

OpCase GlobalPoolCase(const std::string& op_type, const Dims& spatial) {
  std::vector<AxisSetting> axes;
  for (const int64_t n : spatial) axes.push_back({.in = n, .kernel = n});
  OpCase c = op_type == "GlobalMaxPool"
                 ? MaxPoolCase(axes)
                 : AveragePoolCase(axes, /*include_pad=*/false);
  c.op_type = op_type;
  c.version = 1;
  c.attributes.clear();
  return c;
}

}  // namespace

std::vector<OpCase> WindowCases() {
  std::vector<OpCase> cases = {
      ConvCase({}, {{5, 3}, {6, 3}}),
      ConvCase({.bias = false}, {{5, 1}, {6, 1}}),
      ConvCase({}, {{7, 3, 2, 1, 1, 1}, {8, 3, 2, 1, 1, 1}}),
      ConvCase({}, {{7, 3, 3, 2, 2, 1}, {8, 2, 1, 3, 0, 2}}),
      ConvCase({.channels = 4, .filters = 6, .groups = 2}, {{5, 3}, {5, 2}}),
      ConvCase({.channels = 3, .filters = 3, .groups = 3, .bias = false},
               {{6, 3, 1, 1, 1, 1}, {6, 3, 1, 1, 1, 1}}),
      ConvCase({.channels = 17, .filters = 16}, {{4, 3, 1, 1, 1, 1}, {4, 3}}),
      ConvCase({.channels = 1, .filters = 32}, {{6, 3, 1, 1, 1, 1}, {6, 3}}),
      ConvCase({}, {{9, 4, 2, 1, 1, 2}}),
      ConvCase({.bias = false}, {{4, 2}, {3, 2, 1, 2, 1, 1}, {4, 3}}),
      // 6 by 2 is 3 windows; one element of padding goes to either side.
      ConvCase({.auto_pad = "SAME_UPPER"},
               {{6, 3, 2, 1, 0, 1}, {5, 2, 1, 1, 0, 1}}),
      ConvCase({.auto_pad = "SAME_LOWER"},
               {{6, 3, 2, 1, 1, 0}, {5, 2, 1, 1, 1, 0}}),
      ConvCase({.auto_pad = "VALID"}, {{6, 3, 2}, {5, 2}}),
      ConvTransposeCase({}, {{5, 3}, {6, 3}}),
      ConvTransposeCase({.bias = false},
                        {{8, 3, 2, 1, 1, 1}, {7, 3, 2, 2, 1, 2}}),
      ConvTransposeCase({.channels = 4, .filters = 6, .groups = 2},
                        {{5, 3, 2, 1, 1, 1}, {5, 2}}),
      ConvTransposeCase({}, {{9, 4, 2, 1, 1, 2}}),
      ConvTransposeCase({}, {{4, 2}, {3, 2}, {4, 3}}),
      ConvTransposeCase({.auto_pad = "SAME_UPPER"},
                        {{6, 3, 2, 1, 0, 1}, {5, 2, 1, 1, 0, 1}}),
      ConvTransposeCase({.auto_pad = "SAME_LOWER"},
                        {{6, 3, 2, 1, 1, 0}, {5, 2, 1, 1, 1, 0}}),
      ConvTransposeCase({.auto_pad = "NOTSET"}, {{6, 3, 2, 1, 1, 0}, {5, 2}},
                        {{"output_shape", std::vector<int64_t>{6, 5}}}),
      MaxPoolCase({{6, 2, 2}, {8, 2, 2}}),
      MaxPoolCase({{5, 3, 1, 1, 1, 1}, {7, 3, 2, 1, 1, 1}}),
      MaxPoolCase({{7, 2, 3, 2}, {9, 3, 1, 3, 1, 1}}),
      MaxPoolCase({{6, 3, 2}, {8, 3, 2}}, /*ceil=*/true),
      MaxPoolCase({{9, 3, 3, 1, 1, 0}}),
      MaxPoolCase({{3, 2}, {3, 2}, {4, 2, 2}}),
      MaxPoolCase({{6, 3, 2, 1, 0, 1}, {5, 2, 1, 1, 0, 1}}, false,
                  "SAME_UPPER"),
      MaxPoolCase({{6, 3, 2, 1, 1, 0}, {5, 2, 1, 1, 1, 0}}, false,
                  "SAME_LOWER"),
      GlobalPoolCase("GlobalAveragePool", {3, 4}),
      GlobalPoolCase("GlobalAveragePool", {5}),
      GlobalPoolCase("GlobalMaxPool", {3, 4}),
      GlobalPoolCase("GlobalMaxPool", {2, 3, 2}),
      // Channels in blocks: the library's own, and, for pools, any.
      InBlocks(GlobalPoolCase("GlobalAveragePool", {3, 4}), 3, 1),
      InBlocks(GlobalPoolCase("GlobalMaxPool", {3, 4}), 3, 1),
      InBlocks(MaxPoolCase({{6, 2, 2}, {8, 2, 2}}), 3, 3),
      InBlocks(MaxPoolCase({{5, 3, 1, 1, 1, 1}, {7, 3, 2, 1, 1, 1}}), 3, 3),
      InBlocks(MaxPoolCase({{9, 3, 3, 1, 1, 0}}), 3, 3),
      InBlocks(AveragePoolCase({{7, 2, 3, 2, 1, 1}, {9, 3, 1, 2, 2, 0}}, false),
               3, 3),
  };
  for (const int64_t block : {8, 16}) {
    const ConvSetting square = {.channels = 16, .filters = 16};
    const OpCase plane = ConvCase(square, {{4, 2}, {3, 1}});
    cases.push_back(InBlocks(plane, block, block));
    cases.push_back(InBlocks(plane, 1, block));
    cases.push_back(InBlocks(plane, block, 1));
    cases.push_back(InBlocks(
        ConvCase({.channels = 16, .filters = 32, .groups = 2, .bias = false},
                 {{5, 2, 2, 1, 1, 0}}),
        block, block));
  }
  for (const bool include_pad : {false, true}) {
    const auto pool = [&](const std::vector<AxisSetting>& axes,
                          bool ceil = false, const std::string& pad = "") {
      cases.push_back(AveragePoolCase(axes, include_pad, ceil, pad));
    };
    pool({{6, 2, 2}, {8, 2, 2}});
    pool({{5, 3, 1, 1, 1, 1}, {7, 3, 2, 1, 1, 1}});
    pool({{7, 2, 3, 2, 1, 1}, {9, 3, 1, 2, 2, 0}});
    pool({{6, 3, 2, 1, 1, 0}, {8, 3, 2, 1, 1, 0}}, /*ceil=*/true);
    pool({{4, 2}, {3, 2}, {5, 2, 2, 1, 1, 1}});
    pool({{6, 3, 2, 1, 0, 1}, {5, 2, 1, 1, 0, 1}}, false, "SAME_UPPER");
  }
  return cases;
}

}  // namespace syncline::testing
