#include "worker/ops/elementwise/binary_op.h"

#include "common/base/status_macros.h"
#include "kernels/threads.h"

namespace syncline::worker {
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
    ForParts([&](const BroadcastPart& part) {
      kernels_.forward(part.shape, t.in(0) + part.a, t.in(1) + part.b,
                       t.out(0) + part.result);
    });
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    RunGradient(kernels_.gradient_b, 1, t, g);
    RunGradient(kernels_.gradient_a, 0, t, g);
    return absl::OkStatus();
  }

 private:
  // Calls run(part) for what each thread has of the result.
  template <typename Run>
  void ForParts(Run run) const {
    const int64_t rows = OutermostCount(shape_);
    ParallelForRows(
        rows, rows == 0 ? 0 : shape_.count / rows,
        [&](int64_t begin, int64_t end) { run(PartOf(shape_, begin, end)); });
  }

  // An operand that is repeated has sums, which are not cut.
  void RunGradient(const BinaryKernels::Gradient& gradient, size_t i,
                   const Tensors& t, const Gradients& g) const {
    if (g.in(i) == nullptr) return;
    const int64_t operand = i == 0 ? shape_.a_count : shape_.b_count;
    if (operand != shape_.count) {
      gradient.run({shape_, t.in(0), t.in(1), t.out(0), g.out(),
                    g.accumulate(i), g.in(i)});
      return;
    }
    ForParts([&](const BroadcastPart& part) {
      gradient.run({part.shape, Moved(t.in(0), part.a), Moved(t.in(1), part.b),
                    Moved(t.out(0), part.result), g.out() + part.result,
                    g.accumulate(i), g.in(i) + part.result});
    });
  }
  // An array that a gradient does not read may be null.
  static const float* Moved(const float* array, int64_t offset) {
    return array == nullptr ? nullptr : array + offset;
  }

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

}  // namespace syncline::worker
