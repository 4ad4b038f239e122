#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/channel_sums.h"
#include "worker/ops/convolution.h"
#include "worker/ops/window.h"

namespace syncline::worker {
namespace {

Op::Traits TraitsOf(const OpSpec& spec, const Convolution& convolution) {
  Op::Traits traits;
  if (spec.WantsGradient(0)) traits.backward_inputs |= 0b10;
  if (spec.WantsGradient(1)) traits.backward_inputs |= 0b01;
  traits.forward_scratch_bytes = convolution.forward_scratch_bytes();
  traits.backward_scratch_bytes =
      std::max(convolution.backward_data_scratch_bytes(),
               convolution.backward_weights_scratch_bytes());
  return traits;
}

class ConvOp : public Op {
 public:
  // `y`: the output's planes.
  ConvOp(const OpSpec& spec, Convolution convolution, ChannelPlanes y)
      : Op(TraitsOf(spec, convolution)),
        convolution_(std::move(convolution)),
        y_(y) {}

  absl::Status Forward(const Tensors& t) override {
    return convolution_.Forward(t.in(0), t.in(1), t.in(2),
                                /*accumulate=*/false, t.out(0), t.scratch);
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    if (g.in(2) != nullptr) {
      SumChannels(y_, g.out(), g.accumulate(2), g.in(2));
    }
    const bool of_weights = g.in(1) != nullptr;
    if (of_weights) {
      SYNCLINE_RETURN_IF_ERROR(convolution_.BackwardWeights(
          t.in(0), g.out(), g.accumulate(1), g.in(1), t.scratch));
    }
    if (g.in(0) == nullptr) return absl::OkStatus();
    return convolution_.BackwardData(g.out(), t.in(1), g.accumulate(0), g.in(0),
                                     t.scratch, /*after_weights=*/of_weights);
  }

 private:
  Convolution convolution_;
  const ChannelPlanes y_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeConv(const OpSpec& spec) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  const Dims& x = spec.input(0).dims;
  const Dims& y = spec.output(0).dims;
  SYNCLINE_ASSIGN_OR_RETURN(const Dims kernel, KernelOf(spec));
  SYNCLINE_ASSIGN_OR_RETURN(Window window, WindowOf(*spec.node, x, y, kernel));
  SYNCLINE_ASSIGN_OR_RETURN(Convolution::Shape shape,
                            ConvolutionShapeOf(spec, x, y, std::move(window)));
  shape.x_block = spec.input(0).channel_block;
  shape.y_block = spec.output(0).channel_block;
  if (shape.has_bias && spec.input(2).dims != Dims{shape.filters}) {
    return absl::InvalidArgumentError(
        absl::StrCat("the bias is ", DimsToString(spec.input(2).dims),
                     "; it must be [", shape.filters, "]"));
  }
  const ChannelPlanes planes = {
      .batch = shape.batch,
      .channels = shape.filters,
      .plane = ElementCount(absl::MakeConstSpan(y).subspan(2)),
      .block = shape.y_block};
  SYNCLINE_ASSIGN_OR_RETURN(
      Convolution convolution,
      Convolution::Create(shape, {.forward = true,
                                  .backward_data = spec.WantsGradient(0),
                                  .backward_weights = spec.WantsGradient(1)}));
  return std::make_unique<ConvOp>(spec, std::move(convolution), planes);
}

}  // namespace syncline::worker
