#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/padding_kernels.h"
#include "worker/ops/axes.h"
#include "worker/ops/tensor/strided_copy.h"

namespace syncline::worker {
namespace {

absl::StatusOr<PadMode> ModeOf(const Node& node) {
  const std::string mode = node.String("mode", "constant");
  if (mode == "constant") return PadMode::kConstant;
  if (mode == "edge") return PadMode::kEdge;
  if (mode == "reflect") return PadMode::kReflect;
  if (mode == "wrap") return PadMode::kWrap;
  return absl::InvalidArgumentError(absl::StrCat(
      "mode is \"", mode, "\"; it must be constant, edge, reflect or wrap"));
}

// `n` elements of the input become `count`.
absl::StatusOr<Padding::Axis> PadAxis(int64_t n, int64_t before, int64_t after,
                                      int64_t count) {
  Padding::Axis axis;
  axis.first = std::max<int64_t>(-before, 0);
  axis.left = n - axis.first - std::max<int64_t>(-after, 0);
  if (axis.left < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("pads ", before, " and ", after, " take more than the ", n,
                     " elements of a dimension"));
  }
  axis.begin = std::max<int64_t>(before, 0);
  axis.count = axis.end() + std::max<int64_t>(after, 0);
  if (axis.count != count) {
    return absl::InvalidArgumentError(
        absl::StrCat("pads ", before, " and ", after, " make ", axis.count,
                     " of ", n, " elements, but its output has ", count));
  }
  return axis;
}

class PadOp : public Op {
 public:
  PadOp(const Padding& padding, const PaddingKernels& kernels)
      : Op(Traits()), padding_(padding), kernels_(kernels) {}

  absl::Status Forward(const Tensors& t) override {
    kernels_.forward(*t.stream, padding_, t.inputs[0], t.in(2), t.outputs[0]);
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    kernels_.backward(*t.stream, padding_, g.out(), g.accumulate(0), g.in(0));
    return absl::OkStatus();
  }

 private:
  const Padding padding_;
  const PaddingKernels kernels_;
};

// Small enough that a sum of a few pads does not overflow.
constexpr int64_t kPadMax = int64_t{1} << 46;

// Pads before and after each dimension.
struct Pads {
  Dims before, after;
};

absl::StatusOr<Pads> PadsOf(const OpSpec& spec) {
  const size_t rank = spec.input(0).dims.size();
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<int64_t> pads,
                            ConstantInts(spec.input(1), "pads"));
  std::vector<int64_t> axes;
  if (spec.input(3).present) {
    SYNCLINE_ASSIGN_OR_RETURN(axes, ConstantInts(spec.input(3), "axes"));
  } else {
    for (size_t d = 0; d < rank; ++d) axes.push_back(static_cast<int64_t>(d));
  }
  if (pads.size() != 2 * axes.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pads has ", pads.size(), " numbers; it must have ", 2 * axes.size()));
  }
  Pads result = {Dims(rank, 0), Dims(rank, 0)};
  std::vector<bool> named(rank, false);
  for (size_t i = 0; i < axes.size(); ++i) {
    SYNCLINE_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis(axes[i], rank));
    if (named[axis]) {
      return absl::InvalidArgumentError(
          absl::StrCat("axes name dimension ", axis, " twice"));
    }
    named[axis] = true;
    for (const int64_t pad : {pads[i], pads[axes.size() + i]}) {
      if (pad >= -kPadMax && pad <= kPadMax) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("a pad of ", pad, " is too large"));
    }
    result.before[axis] = pads[i];
    result.after[axis] = pads[axes.size() + i];
  }
  return result;
}

absl::Status CheckConstantValue(const OpSpec& spec) {
  const TensorType& value = spec.input(2);
  const DType dtype = spec.input(0).dtype;
  if (!value.present || (value.count() == 1 && value.dtype == dtype)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "constant_value is ", DTypeName(value.dtype), DimsToString(value.dims),
      "; it must be one ", DTypeName(dtype), ", as the data are"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakePad(const OpSpec& spec) {
  Padding padding;
  SYNCLINE_ASSIGN_OR_RETURN(padding.mode, ModeOf(*spec.node));
  padding.input_count = spec.input(0).count();
  padding.element_bytes = DTypeBytes(spec.input(0).dtype);
  SYNCLINE_RETURN_IF_ERROR(CheckConstantValue(spec));
  SYNCLINE_ASSIGN_OR_RETURN(const Pads pads, PadsOf(spec));
  const Dims& in = spec.input(0).dims;
  const Dims& out = spec.output(0).dims;
  if (out.size() != in.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("input 0 is ", DimsToString(in), ", but the output is ",
                     DimsToString(out)));
  }
  const PaddingKernels* const kernels = spec.kernels().padding;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(
      spec.RequireKernels(kernels->forward, kernels->backward));
  // Other dimensions of an empty result may be larger than any memory.
  if (spec.output(0).count() == 0) {
    padding.axes.push_back({.left = 0, .count = 0});
    return std::make_unique<PadOp>(padding, *kernels);
  }
  const Dims strides = DenseStrides(in);
  for (size_t d = 0; d < in.size(); ++d) {
    SYNCLINE_ASSIGN_OR_RETURN(
        Padding::Axis axis,
        PadAxis(in[d], pads.before[d], pads.after[d], out[d]));
    if (axis.left == 0 && padding.mode != PadMode::kConstant) {
      return absl::InvalidArgumentError(
          absl::StrCat("mode \"", spec.node->String("mode", ""),
                       "\" has no element to repeat"));
    }
    axis.stride = strides[d];
    padding.axes.push_back(axis);
  }
  // A scalar is one element in a row.
  if (in.empty()) padding.axes.push_back({});
  return std::make_unique<PadOp>(padding, *kernels);
}

}  // namespace syncline::worker
