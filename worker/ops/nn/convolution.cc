// Conv and ConvTranspose.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/convolution_kernels.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/strided_copy_kernels.h"
#include "kernels/elementwise/broadcast.h"
#include "worker/ops/nn/window.h"

namespace syncline::worker {
namespace {

// The window's size: the weights', with which kernel_shape must agree.
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

// The shape of the convolution from `in` to `out` with the window and the
// node's groups and weights (input 1 [filters, channels / groups, kernel...]).
// Errors: InvalidArgument: they do not fit.
absl::StatusOr<ConvolutionShape> ConvolutionShapeOf(const OpSpec& spec,
                                                    const Dims& in,
                                                    const Dims& out,
                                                    const Window& window) {
  ConvolutionShape shape;
  shape.batch = in[0];
  shape.channels = in[1];
  shape.filters = out[1];
  shape.groups = spec.node->Int("group", 1);
  shape.has_bias = spec.input(2).present;
  shape.window = window;
  shape.has_narrow_factors = spec.has_narrow_factors;
  shape.type = spec.input(0).dtype;
  shape.weights_gradient_type = spec.input(1).gradient_dtype;
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

// Errors: Unimplemented: there are floats of two types where a convolution has
// one: its two factors, its result, and the gradients that are factors or
// results.
absl::Status RequireTypesOfConvolution(const OpSpec& spec) {
  if (!spec.HasNarrowTypes()) return absl::OkStatus();
  const TensorType& x = spec.input(0);
  const TensorType& w = spec.input(1);
  const TensorType& y = spec.output(0);
  const DType type = x.dtype;
  const DType of_weights = w.gradient_dtype;
  if (Is16Bit(type) && w.dtype == type && y.dtype == type &&
      (!spec.WantsAnyGradient() || y.gradient_dtype == type) &&
      (!spec.WantsGradient(0) || x.gradient_dtype == type) &&
      (of_weights == type || of_weights == DType::kFloat32) &&
      !Is16Bit(spec.input(2).dtype) && !Is16Bit(spec.input(2).gradient_dtype)) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError("a convolution of two types");
}

// The layer, compiled for these calls. Errors: InvalidArgument: the device has
// none; Unimplemented, and others: ConvolutionKernels::make's.
absl::StatusOr<std::unique_ptr<ConvolutionLayer>> MakeLayer(
    const OpSpec& spec, const ConvolutionShape& shape,
    const ConvolutionUses& uses) {
  const ConvolutionKernels* const family = spec.kernels().convolution;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family));
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family->make));
  return family->make(*spec.device, shape, uses);
}

Op::Traits ConvTraits(const OpSpec& spec, const ConvolutionLayer& layer) {
  Op::Traits traits;
  if (spec.WantsGradient(0)) traits.backward_inputs |= 0b10;
  if (spec.WantsGradient(1)) traits.backward_inputs |= 0b01;
  traits.forward_scratch_bytes = layer.forward_scratch_bytes();
  traits.backward_scratch_bytes =
      std::max(layer.backward_data_scratch_bytes(),
               layer.backward_weights_scratch_bytes());
  return traits;
}

class ConvOp : public Op {
 public:
  ConvOp(const OpSpec& spec, std::unique_ptr<ConvolutionLayer> layer)
      : Op(ConvTraits(spec, *layer)), layer_(std::move(layer)) {}

  absl::Status Forward(const Tensors& t) override {
    return layer_->Forward(*t.stream, t.in(0), t.in(1), t.in(2),
                           /*accumulate=*/false, t.out(0), t.scratch);
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    if (g.in(2) != nullptr) {
      layer_->BackwardBias(*t.stream, g.out(), g.accumulate(2), g.in(2));
    }
    const bool of_weights = g.in(1) != nullptr;
    if (of_weights) {
      SYNCLINE_RETURN_IF_ERROR(layer_->BackwardWeights(
          *t.stream, t.in(0), g.out(), g.accumulate(1), g.in(1), t.scratch));
    }
    if (g.in(0) == nullptr) return absl::OkStatus();
    return layer_->BackwardData(*t.stream, g.out(), t.in(1), g.accumulate(0),
                                g.in(0), t.scratch,
                                /*after_weights=*/of_weights);
  }

 private:
  const std::unique_ptr<ConvolutionLayer> layer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeConv(const OpSpec& spec) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  SYNCLINE_RETURN_IF_ERROR(RequireTypesOfConvolution(spec));
  const Dims& x = spec.input(0).dims;
  const Dims& y = spec.output(0).dims;
  SYNCLINE_ASSIGN_OR_RETURN(const Dims kernel, KernelOf(spec));
  SYNCLINE_ASSIGN_OR_RETURN(const Window window,
                            WindowOf(*spec.node, x, y, kernel));
  SYNCLINE_ASSIGN_OR_RETURN(ConvolutionShape shape,
                            ConvolutionShapeOf(spec, x, y, window));
  shape.x_block = spec.input(0).channel_block;
  shape.y_block = spec.output(0).channel_block;
  if (shape.has_bias && spec.input(2).dims != Dims{shape.filters}) {
    return absl::InvalidArgumentError(
        absl::StrCat("the bias is ", DimsToString(spec.input(2).dims),
                     "; it must be [", shape.filters, "]"));
  }
  SYNCLINE_ASSIGN_OR_RETURN(
      std::unique_ptr<ConvolutionLayer> layer,
      MakeLayer(spec, shape,
                {.forward = true,
                 .backward_data = spec.WantsGradient(0),
                 .backward_weights = spec.WantsGradient(1)}));
  return std::make_unique<ConvOp>(spec, std::move(layer));
}

namespace {

// A transposed convolution is a convolution's derivative: forward is that one's
// backward pass for data, and the other way round.

Op::Traits ConvTransposeTraits(const OpSpec& spec,
                               const ConvolutionLayer& layer) {
  Op::Traits traits;
  if (spec.WantsGradient(0)) traits.backward_inputs |= 0b10;
  if (spec.WantsGradient(1)) traits.backward_inputs |= 0b01;
  traits.forward_scratch_bytes = layer.backward_data_scratch_bytes();
  traits.backward_scratch_bytes = std::max(
      layer.forward_scratch_bytes(), layer.backward_weights_scratch_bytes());
  return traits;
}

class ConvTransposeOp : public Op {
 public:
  // `bias_over_y`: the bias, [channels, 1, ...], over the output.
  ConvTransposeOp(const OpSpec& spec, std::unique_ptr<ConvolutionLayer> layer,
                  const Broadcast& bias_over_y)
      : Op(ConvTransposeTraits(spec, *layer)),
        layer_(std::move(layer)),
        bias_over_y_(bias_over_y),
        add_bias_(spec.kernels().convolution->add_bias),
        sum_bias_gradient_(spec.kernels().strided_copy == nullptr
                               ? nullptr
                               : spec.kernels().strided_copy->add_repeated) {}

  absl::Status RequireKernels(const OpSpec& spec) const {
    if (spec.input(2).present) {
      SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(add_bias_));
    }
    if (!spec.WantsGradient(2)) return absl::OkStatus();
    return spec.RequireKernels(sum_bias_gradient_);
  }

  absl::Status Forward(const Tensors& t) override {
    SYNCLINE_RETURN_IF_ERROR(layer_->BackwardData(
        *t.stream, t.in(0), t.in(1), /*accumulate=*/false, t.out(0), t.scratch,
        /*after_weights=*/false));
    if (t.in(2) != nullptr) {
      add_bias_(*t.stream, bias_over_y_, t.in(2), t.out(0));
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    if (g.in(2) != nullptr) {
      sum_bias_gradient_(*t.stream, bias_over_y_, g.out(), g.accumulate(2),
                         g.in(2));
    }
    if (g.in(1) != nullptr) {
      SYNCLINE_RETURN_IF_ERROR(layer_->BackwardWeights(
          *t.stream, g.out(), t.in(0), g.accumulate(1), g.in(1), t.scratch));
    }
    if (g.in(0) == nullptr) return absl::OkStatus();
    return layer_->Forward(*t.stream, g.out(), t.in(1), /*bias=*/nullptr,
                           g.accumulate(0), g.in(0), t.scratch);
  }

 private:
  const std::unique_ptr<ConvolutionLayer> layer_;
  const Broadcast bias_over_y_;
  decltype(ConvolutionKernels::add_bias) const add_bias_;
  decltype(StridedCopyKernels::add_repeated) const sum_bias_gradient_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeConvTranspose(const OpSpec& spec) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  SYNCLINE_RETURN_IF_ERROR(RequireTypesOfConvolution(spec));
  if (spec.HasNarrowTypes() && spec.input(2).present) {
    return absl::UnimplementedError("a bias is added to a rounded result");
  }
  const Dims& x = spec.input(0).dims;
  const Dims& y = spec.output(0).dims;
  SYNCLINE_ASSIGN_OR_RETURN(const Dims kernel, KernelOf(spec));
  SYNCLINE_ASSIGN_OR_RETURN(const Window window,
                            TransposedWindowOf(*spec.node, x, y, kernel));
  SYNCLINE_ASSIGN_OR_RETURN(ConvolutionShape shape,
                            ConvolutionShapeOf(spec, y, x, window));
  shape.has_bias = false;  // it is added here
  Broadcast bias_over_y;
  if (spec.input(2).present) {
    if (spec.input(2).dims != Dims{y[1]}) {
      return absl::InvalidArgumentError(
          absl::StrCat("the bias is ", DimsToString(spec.input(2).dims),
                       "; it must be [", y[1], "]"));
    }
    Dims bias(y.size() - 1, 1);
    bias[0] = y[1];
    SYNCLINE_ASSIGN_OR_RETURN(bias_over_y, MakeBroadcast(y, bias));
  }
  SYNCLINE_ASSIGN_OR_RETURN(
      std::unique_ptr<ConvolutionLayer> layer,
      MakeLayer(spec, shape,
                {.forward = spec.WantsGradient(0),
                 .backward_data = true,
                 .backward_weights = spec.WantsGradient(1)}));
  auto op =
      std::make_unique<ConvTransposeOp>(spec, std::move(layer), bias_over_y);
  SYNCLINE_RETURN_IF_ERROR(op->RequireKernels(spec));
  return op;
}

}  // namespace syncline::worker
