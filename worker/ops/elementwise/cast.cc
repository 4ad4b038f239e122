#include "common/base/status_macros.h"
#include "kernels/device/cast_kernels.h"
#include "kernels/device/kernel_table.h"
#include "worker/ops/op.h"

namespace syncline::worker {
namespace {

class CastOp : public Op {
 public:
  CastOp(int64_t count, CastKernels::Forward forward,
         CastKernels::Backward backward)
      : Op({.gradient_in_place = true}),
        count_(count),
        forward_(forward),
        backward_(backward) {}

  absl::Status Forward(const Tensors& t) override {
    forward_(*t.stream, count_, t.inputs[0], t.outputs[0]);
    return absl::OkStatus();
  }

  // Only a cast from float32 to float32 has a gradient.
  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    backward_(*t.stream, count_, g.out(), g.accumulate(0), g.in(0));
    return absl::OkStatus();
  }

 private:
  const int64_t count_;
  const CastKernels::Forward forward_;
  const CastKernels::Backward backward_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeCast(const OpSpec& spec) {
  const CastKernels* const family = spec.kernels().cast;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family));
  const CastKernels::Forward forward =
      family->casts[spec.input(0).dtype][spec.output(0).dtype];
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(forward, family->backward));
  return std::make_unique<CastOp>(spec.input(0).count(), forward,
                                  family->backward);
}

}  // namespace syncline::worker
