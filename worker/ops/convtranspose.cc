// A transposed convolution is a convolution's derivative: forward is that one's
// backward pass for data, and the other way round.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/elementwise/elementwise.h"
#include "worker/ops/convolution.h"
#include "worker/ops/window.h"

namespace syncline::worker {
namespace {

Op::Traits TraitsOf(const OpSpec& spec, const Convolution& convolution) {
  Op::Traits traits;
  if (spec.WantsGradient(0)) traits.backward_inputs |= 0b10;
  if (spec.WantsGradient(1)) traits.backward_inputs |= 0b01;
  traits.forward_scratch_bytes = convolution.backward_data_scratch_bytes();
  traits.backward_scratch_bytes =
      std::max(convolution.forward_scratch_bytes(),
               convolution.backward_weights_scratch_bytes());
  return traits;
}

class ConvTransposeOp : public Op {
 public:
  // `bias_over_y`: the bias, [channels, 1, ...], over the output.
  ConvTransposeOp(const OpSpec& spec, Convolution convolution,
                  Broadcast bias_over_y)
      : Op(TraitsOf(spec, convolution)),
        convolution_(std::move(convolution)),
        bias_over_y_(std::move(bias_over_y)) {}

  absl::Status Forward(const Tensors& t) override {
    SYNCLINE_RETURN_IF_ERROR(convolution_.BackwardData(
        t.in(0), t.in(1), /*accumulate=*/false, t.out(0), t.scratch));
    if (t.in(2) != nullptr) Add(bias_over_y_, t.out(0), t.in(2), t.out(0));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    if (g.in(2) != nullptr) {
      AddGradient(bias_over_y_, Side::kB, 1, g.out(), g.accumulate(2), g.in(2));
    }
    if (g.in(1) != nullptr) {
      SYNCLINE_RETURN_IF_ERROR(convolution_.BackwardWeights(
          g.out(), t.in(0), g.accumulate(1), g.in(1), t.scratch));
    }
    if (g.in(0) == nullptr) return absl::OkStatus();
    return convolution_.Forward(g.out(), t.in(1), /*bias=*/nullptr,
                                g.accumulate(0), g.in(0), t.scratch);
  }

 private:
  Convolution convolution_;
  const Broadcast bias_over_y_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeConvTranspose(const OpSpec& spec) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  const Dims& x = spec.input(0).dims;
  const Dims& y = spec.output(0).dims;
  SYNCLINE_ASSIGN_OR_RETURN(const Dims kernel, KernelOf(spec));
  SYNCLINE_ASSIGN_OR_RETURN(Window window,
                            TransposedWindowOf(*spec.node, x, y, kernel));
  SYNCLINE_ASSIGN_OR_RETURN(Convolution::Shape shape,
                            ConvolutionShapeOf(spec, y, x, std::move(window)));
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
      Convolution convolution,
      Convolution::Create(shape, {.forward = spec.WantsGradient(0),
                                  .backward_data = true,
                                  .backward_weights = spec.WantsGradient(1)}));
  return std::make_unique<ConvTransposeOp>(spec, std::move(convolution),
                                           std::move(bias_over_y));
}

}  // namespace syncline::worker
