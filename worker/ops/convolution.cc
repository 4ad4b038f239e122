#include "worker/ops/convolution.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace syncline::worker {

absl::StatusOr<Dims> KernelOf(const OpSpec& spec) {
  const Dims& weights = spec.input(1).dims;
  if (weights.size() < 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("the weights are ", DimsToString(weights),
                     "; they must have 2 dimensions and those of the window"));
  }
  Dims kernel(weights.begin() + 2, weights.end());
  if (spec.node->Has("kernel_shape") &&
      spec.node->Ints("kernel_shape") != kernel) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kernel_shape is ", DimsToString(spec.node->Ints("kernel_shape")),
        ", but the weights are ", DimsToString(weights)));
  }
  return kernel;
}

absl::StatusOr<Convolution::Shape> ConvolutionShapeOf(const OpSpec& spec,
                                                      const Dims& in,
                                                      const Dims& out,
                                                      Window window) {
  Convolution::Shape shape;
  shape.batch = in[0];
  shape.channels = in[1];
  shape.filters = out[1];
  shape.groups = spec.node->Int("group", 1);
  shape.has_bias = spec.input(2).present;
  shape.window = std::move(window);
  const Dims& w = spec.input(1).dims;
  const int64_t groups = shape.groups;
  if (groups < 1 || shape.channels % groups != 0 ||
      shape.filters % groups != 0 || w[0] != shape.filters ||
      w[1] != shape.channels / groups || out[0] != in[0]) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights ", DimsToString(w), " in ", groups,
                     " groups do not lead from ", DimsToString(in), " to ",
                     DimsToString(out)));
  }
  return shape;
}

}  // namespace syncline::worker
