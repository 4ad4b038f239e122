#include "worker/ops/elementwise/binary_op.h"

#include "common/base/status_macros.h"
#include "kernels/device/binary_kernels.h"
#include "kernels/device/kernel_table.h"
#include "kernels/elementwise/broadcast.h"

namespace syncline::worker {
namespace {

Op::Traits TraitsOf(const OpSpec& spec, const Broadcast& shape,
                    BinaryFunction function) {
  Op::Traits traits;
  for (const Side side : {Side::kA, Side::kB}) {
    if (!spec.WantsGradient(side == Side::kA ? 0 : 1)) continue;
    const BinaryReads reads = BinaryReadsOf(function, side);
    if (reads.a) traits.backward_inputs |= 0b01;
    if (reads.b) traits.backward_inputs |= 0b10;
    if (reads.y) traits.backward_outputs = 1;
  }
  if (shape.a_count == shape.count) {
    traits.in_place_input = 0;
    traits.gradient_in_place = true;
  } else if (shape.b_count == shape.count) {
    traits.in_place_input = 1;
  }
  return traits;
}

class BinaryOp : public Op {
 public:
  BinaryOp(const Traits& traits, const Broadcast& shape,
           const BinaryKernels::Function& kernels)
      : Op(traits), shape_(shape), kernels_(kernels) {}

  absl::Status Forward(const Tensors& t) override {
    kernels_.forward(*t.stream, shape_, t.in(0), t.in(1), t.out(0));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    RunGradient(kernels_.backward_b, 1, t, g);
    RunGradient(kernels_.backward_a, 0, t, g);
    return absl::OkStatus();
  }

 private:
  void RunGradient(BinaryKernels::Function::Backward gradient, size_t i,
                   const Tensors& t, const Gradients& g) const {
    if (g.in(i) == nullptr) return;
    gradient(*t.stream, shape_, t.in(0), t.in(1), t.out(0), g.out(),
             g.accumulate(i), g.in(i));
  }

  const Broadcast shape_;
  const BinaryKernels::Function kernels_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeBinary(const OpSpec& spec,
                                               BinaryFunction function) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  const BinaryKernels* const family = spec.kernels().binary;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family));
  const BinaryKernels::Function kernels = (*family)[function];
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(
      kernels.forward, kernels.backward_a, kernels.backward_b));
  SYNCLINE_ASSIGN_OR_RETURN(
      const Broadcast shape,
      MakeBroadcast(spec.input(0).dims, spec.input(1).dims));
  return std::make_unique<BinaryOp>(TraitsOf(spec, shape, function), shape,
                                    kernels);
}

}  // namespace syncline::worker
