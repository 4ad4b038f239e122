#include "worker/ops/elementwise/unary_op.h"

#include "common/base/status_macros.h"
#include "kernels/threads.h"

namespace syncline::worker {
namespace {

class UnaryOp : public Op {
 public:
  UnaryOp(const OpSpec& spec, const UnaryKernels& kernels)
      : Op({.backward_inputs = kernels.saved == UnaryKernels::Saved::kInput,
            .backward_outputs = kernels.saved == UnaryKernels::Saved::kOutput,
            .in_place_input = 0,
            .gradient_in_place = true}),
        kernels_(kernels),
        count_(spec.input(0).count()) {}

  absl::Status Forward(const Tensors& t) override {
    ParallelFor(count_, kElementsPerThread, [&](int64_t begin, int64_t end) {
      kernels_.forward(end - begin, t.in(0) + begin, t.out(0) + begin);
    });
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const bool from_input = kernels_.saved == UnaryKernels::Saved::kInput;
    const float* const saved = from_input ? t.in(0) : t.out(0);
    ParallelFor(count_, kElementsPerThread, [&](int64_t begin, int64_t end) {
      // Not read, and perhaps null, where nothing is saved.
      const float* const from = saved == nullptr ? nullptr : saved + begin;
      kernels_.backward(end - begin, from, g.out() + begin, g.accumulate(0),
                        g.in(0) + begin);
    });
    return absl::OkStatus();
  }

 private:
  const UnaryKernels kernels_;
  const int64_t count_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeUnary(const OpSpec& spec,
                                              const UnaryKernels& kernels) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  return std::make_unique<UnaryOp>(spec, kernels);
}

}  // namespace syncline::worker
