#include "worker/ops/nn/window.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

namespace syncline::worker {
namespace {

// Products of these stay far from overflow.
constexpr int64_t kAttributeMax = int64_t{1} << 24;

// Attribute `name`, one number per axis (or two for pads), each in
// [least, kAttributeMax].
absl::StatusOr<std::vector<int64_t>> Numbers(const Node& node,
                                             absl::string_view name,
                                             size_t count, int64_t least,
                                             int64_t fallback) {
  if (!node.Has(name)) return std::vector<int64_t>(count, fallback);
  std::vector<int64_t> numbers = node.Ints(name);
  if (numbers.size() != count) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " has ", numbers.size(), " numbers; it must have ", count));
  }
  for (const int64_t n : numbers) {
    if (n >= least && n <= kAttributeMax) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, " has ", n,
                                                   "; it must be in [", least,
                                                   ", ", kAttributeMax, "]"));
  }
  return numbers;
}

// Everything but pads, which differ between directions.
absl::StatusOr<Window> PlainWindow(const Node& node, const Dims& in,
                                   const Dims& out,
                                   absl::Span<const int64_t> kernel) {
  const size_t axes = in.size() < 2 ? 0 : in.size() - 2;
  if (axes < 1 || axes > 3) {
    return absl::InvalidArgumentError(absl::StrCat(
        "input 0 is ", DimsToString(in),
        "; it must be [batch, channels] and 1 to 3 spatial dimensions"));
  }
  if (kernel.size() != axes || out.size() != in.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a window of ", kernel.size(), " dimensions over ", axes));
  }
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<int64_t> strides,
                            Numbers(node, "strides", axes, 1, 1));
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<int64_t> dilations,
                            Numbers(node, "dilations", axes, 1, 1));
  Window window;
  for (size_t i = 0; i < axes; ++i) {
    if (kernel[i] < 1 || kernel[i] > kAttributeMax || in[i + 2] < 1 ||
        out[i + 2] < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a window of ", kernel[i], " from ", in[i + 2], " to ", out[i + 2]));
    }
    window.axes.push_back({.in = in[i + 2],
                           .out = out[i + 2],
                           .kernel = kernel[i],
                           .stride = strides[i],
                           .dilation = dilations[i]});
  }
  return window;
}

// Padding of `total`, half at each side; which one has more if it is odd?
void PadHalf(int64_t total, bool more_at_end, Window::Axis* axis) {
  total = std::max<int64_t>(total, 0);
  axis->pad_begin = more_at_end ? total / 2 : total - total / 2;
  axis->pad_end = total - axis->pad_begin;
}

bool IsAutoPad(absl::string_view pad) {
  return pad == "NOTSET" || pad == "VALID" || pad == "SAME_UPPER" ||
         pad == "SAME_LOWER";
}

absl::StatusOr<std::string> AutoPadOf(const Node& node) {
  std::string pad = node.String("auto_pad", "NOTSET");
  if (IsAutoPad(pad)) return pad;
  return absl::InvalidArgumentError(
      absl::StrCat("auto_pad is \"", pad,
                   "\"; it must be NOTSET, VALID, SAME_UPPER or SAME_LOWER"));
}

// The attribute pads; its begins come first, then its ends.
absl::Status ReadPads(const Node& node, Window* window) {
  const size_t axes = window->axes.size();
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<int64_t> pads,
                            Numbers(node, "pads", 2 * axes, 0, 0));
  for (size_t i = 0; i < axes; ++i) {
    window->axes[i].pad_begin = pads[i];
    window->axes[i].pad_end = pads[axes + i];
  }
  return absl::OkStatus();
}

// Windows that fit; ceil_mode lets the last one hang over the end, but not
// begin on the padding there.
int64_t FittingWindows(const Window::Axis& axis, bool ceil_mode) {
  const int64_t room = axis.in + axis.pad_begin + axis.pad_end - axis.span();
  if (room < 0) return 0;
  if (!ceil_mode) return room / axis.stride + 1;
  const int64_t last = (room + axis.stride - 1) / axis.stride;
  return last * axis.stride >= axis.in + axis.pad_begin ? last : last + 1;
}

// Kernels of some devices count a plane's elements and places in 32 bits
// (kernels/cuda/walk/window_walk.h): there is no plan that only some could run.
constexpr int64_t kCountMax = std::numeric_limits<int32_t>::max();

absl::Status CheckCount(const Window& window, int64_t Window::Axis::*size,
                        absl::string_view what) {
  int64_t count = 1;
  for (const Window::Axis& axis : window.axes) {
    if (axis.*size > kCountMax / count) {
      const std::string sizes = absl::StrJoin(
          window.axes, " x ", [=](std::string* to, const Window::Axis& of) {
            absl::StrAppend(to, of.*size);
          });
      return absl::InvalidArgumentError(
          absl::StrCat(what, " of ", sizes, " elements; at most 2^31 - 1"));
    }
    count *= axis.*size;
  }
  return absl::OkStatus();
}

// Errors: InvalidArgument: a plane, or where a window may be along an axis, is
// not counted in 32 bits.
absl::Status CheckCounts(const Window& window) {
  for (const Window::Axis& axis : window.axes) {
    const int64_t padding = axis.pad_begin + std::max<int64_t>(axis.pad_end, 0);
    if (axis.in <= kCountMax &&
        axis.in + padding + axis.span() + axis.stride <= kCountMax) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "a dimension of ", axis.in, " with ", padding,
        " of padding, under a window of ", axis.span(), " with a stride of ",
        axis.stride, "; together at most 2^31 - 1"));
  }
  SYNCLINE_RETURN_IF_ERROR(CheckCount(window, &Window::Axis::in, "a plane"));
  SYNCLINE_RETURN_IF_ERROR(CheckCount(window, &Window::Axis::out, "a plane"));
  return CheckCount(window, &Window::Axis::kernel, "a window");
}

}  // namespace

absl::StatusOr<Window> WindowOf(const Node& node, const Dims& in,
                                const Dims& out,
                                absl::Span<const int64_t> kernel) {
  SYNCLINE_ASSIGN_OR_RETURN(Window window, PlainWindow(node, in, out, kernel));
  SYNCLINE_ASSIGN_OR_RETURN(const std::string auto_pad, AutoPadOf(node));
  if (auto_pad == "NOTSET") {
    SYNCLINE_RETURN_IF_ERROR(ReadPads(node, &window));
  } else if (auto_pad != "VALID") {
    for (size_t i = 0; i < window.axes.size(); ++i) {
      Window::Axis& axis = window.axes[i];
      const int64_t windows = (axis.in + axis.stride - 1) / axis.stride;
      PadHalf((windows - 1) * axis.stride + axis.span() - axis.in,
              auto_pad == "SAME_UPPER", &axis);
    }
  }
  const bool ceil_mode = node.Int("ceil_mode", 0) != 0;
  for (const Window::Axis& axis : window.axes) {
    const int64_t windows = FittingWindows(axis, ceil_mode);
    if (windows == axis.out) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        windows, " windows fit into a dimension of ", axis.in,
        ", but the output ", DimsToString(out), " has ", axis.out));
  }
  SYNCLINE_RETURN_IF_ERROR(CheckCounts(window));
  return window;
}

absl::StatusOr<Window> TransposedWindowOf(const Node& node, const Dims& in,
                                          const Dims& out,
                                          absl::Span<const int64_t> kernel) {
  SYNCLINE_ASSIGN_OR_RETURN(Window window, PlainWindow(node, out, in, kernel));
  SYNCLINE_ASSIGN_OR_RETURN(const std::string auto_pad, AutoPadOf(node));
  SYNCLINE_ASSIGN_OR_RETURN(
      const std::vector<int64_t> added,
      Numbers(node, "output_padding", window.axes.size(), 0, 0));
  const bool sized = node.Has("output_shape") || auto_pad == "SAME_UPPER" ||
                     auto_pad == "SAME_LOWER";
  if (!sized && auto_pad == "NOTSET") {
    SYNCLINE_RETURN_IF_ERROR(ReadPads(node, &window));
  }
  for (size_t i = 0; i < window.axes.size(); ++i) {
    Window::Axis& axis = window.axes[i];
    const int64_t whole = (axis.out - 1) * axis.stride + axis.span() + added[i];
    if (sized) PadHalf(whole - axis.in, auto_pad == "SAME_UPPER", &axis);
    const int64_t size =
        std::max(whole - axis.pad_begin - axis.pad_end, sized ? axis.in : 0);
    if (size != axis.in) {
      return absl::InvalidArgumentError(
          absl::StrCat("it gives ", size, " in a dimension, but the output ",
                       DimsToString(out), " has ", axis.in));
    }
    // The convolution has no output padding: what its last window leaves.
    axis.pad_end =
        (axis.out - 1) * axis.stride + axis.span() - axis.in - axis.pad_begin;
    if (axis.pad_end <= -axis.stride) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a dimension of ", axis.in, " ends ", -axis.pad_end,
          " behind what the input's last window reaches, with a stride of ",
          axis.stride, "; it must be less than the stride"));
    }
  }
  SYNCLINE_RETURN_IF_ERROR(CheckCounts(window));
  return window;
}

int64_t PlanesOf(const OpSpec& spec) {
  const TensorType& x = spec.input(0);
  return x.dims[0] * x.dims[1] / x.channel_block;
}

void AddChannelAxis(const OpSpec& spec, Window* window) {
  const int64_t block = spec.input(0).channel_block;
  if (block > 1) window->axes.push_back({.in = block, .out = block});
}

absl::StatusOr<Dims> KernelShapeOf(const Node& node) {
  if (node.Has("kernel_shape")) return node.Ints("kernel_shape");
  return absl::InvalidArgumentError("kernel_shape is missing");
}

}  // namespace syncline::worker
