#include "worker/ops/elementwise/pointwise_op.h"

#include "common/base/status_macros.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/pointwise_kernels.h"
#include "worker/ops/without_gradient.h"

namespace syncline::worker {
namespace {

class PointwiseOp : public Op {
 public:
  PointwiseOp(const OpSpec& spec, const PointwiseKernels::Function& kernels,
              GradientReads reads, const PointwiseSettings& settings)
      : Op({.backward_inputs = reads == GradientReads::kInput,
            .backward_outputs = reads == GradientReads::kOutput,
            .in_place_input = 0,
            .gradient_in_place = true}),
        kernels_(kernels),
        reads_(reads),
        settings_(settings),
        count_(spec.input(0).count()) {}

  absl::Status Forward(const Tensors& t) override {
    kernels_.forward(*t.stream, settings_, count_, t.in(0), t.out(0));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const ConstFloats saved =
        reads_ == GradientReads::kInput ? t.in(0) : t.out(0);
    kernels_.backward(*t.stream, settings_, count_, saved, g.out(),
                      g.accumulate(0), g.in(0));
    return absl::OkStatus();
  }

 private:
  const PointwiseKernels::Function kernels_;
  const GradientReads reads_;
  const PointwiseSettings settings_;
  const int64_t count_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakePointwise(
    const OpSpec& spec, PointwiseFunction function,
    const PointwiseSettings& settings) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  const PointwiseKernels* const family = spec.kernels().pointwise;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family));
  const PointwiseKernels::Function kernels = (*family)[function];
  const GradientReads reads = GradientReadsOf(function);
  if (reads == GradientReads::kNoGradient) {
    SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels.forward));
    return MakeOpWithoutGradient(
        [forward = kernels.forward, settings,
         count = spec.input(0).count()](const Op::Tensors& t) {
          forward(*t.stream, settings, count, t.in(0), t.out(0));
          return absl::OkStatus();
        });
  }
  SYNCLINE_RETURN_IF_ERROR(
      spec.RequireKernels(kernels.forward, kernels.backward));
  return std::make_unique<PointwiseOp>(spec, kernels, reads, settings);
}

}  // namespace syncline::worker
