#include "worker/ops/binary.h"

#include "common/base/status_macros.h"

namespace syncline {
namespace {

Op::Traits TraitsOf(const OpSpec& spec, const Broadcast& shape,
                    const BinaryKernels& kernels) {
  Op::Traits traits;
  const BinaryKernels::Gradient* const gradients[] = {&kernels.gradient_a,
                                                      &kernels.gradient_b};
  for (int i = 0; i < 2; ++i) {
    if (!spec.WantsGradient(i)) continue;
    traits.backward_inputs |= gradients[i]->reads_inputs;
    if (gradients[i]->reads_output) traits.backward_outputs = 1;
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
  BinaryOp(const OpSpec& spec, Broadcast shape, const BinaryKernels& kernels)
      : Op(TraitsOf(spec, shape, kernels)),
        shape_(std::move(shape)),
        kernels_(kernels) {}

  absl::Status Forward(const Tensors& t) override {
    kernels_.forward(shape_, t.in(0), t.in(1), t.out(0));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const auto run = [&](const BinaryKernels::Gradient& gradient, size_t i) {
      if (g.in(i) == nullptr) return;
      gradient.run({shape_, t.in(0), t.in(1), t.out(0), g.out(),
                    g.accumulate(i), g.in(i)});
    };
    run(kernels_.gradient_b, 1);
    run(kernels_.gradient_a, 0);
    return absl::OkStatus();
  }

 private:
  const Broadcast shape_;
  const BinaryKernels kernels_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeBinary(const OpSpec& spec,
                                               const BinaryKernels& kernels) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  SYNCLINE_ASSIGN_OR_RETURN(
      Broadcast shape, MakeBroadcast(spec.input(0).dims, spec.input(1).dims));
  return std::make_unique<BinaryOp>(spec, std::move(shape), kernels);
}

}  // namespace syncline
