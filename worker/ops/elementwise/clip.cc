#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/clip_kernels.h"
#include "kernels/device/kernel_table.h"
#include "worker/ops/elementwise/integers.h"
#include "worker/ops/op.h"

namespace syncline::worker {
namespace {

// The bounds are inputs, each of which may be missing. A gradient flows where x
// lies within them, both included; none to the bounds.
class ClipOp : public Op {
 public:
  ClipOp(int64_t count, const ClipKernels& kernels)
      : Op({.backward_inputs = 0b111,
            .in_place_input = 0,
            .gradient_in_place = true}),
        count_(count),
        kernels_(kernels) {}

  absl::Status Forward(const Tensors& t) override {
    kernels_.forward(*t.stream, count_, t.in(0), t.in(1), t.in(2), t.out(0));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    kernels_.backward(*t.stream, count_, t.in(0), t.in(1), t.in(2), g.out(),
                      g.accumulate(0), g.in(0));
    return absl::OkStatus();
  }

 private:
  const int64_t count_;
  const ClipKernels kernels_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeClip(const OpSpec& spec) {
  const bool is_integer = IsInteger(spec.input(0).dtype);
  if (!is_integer) SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  for (size_t i = 1; i < 3; ++i) {
    if (!spec.input(i).present || spec.input(i).count() == 1) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        i == 1 ? "min" : "max", " is ", DimsToString(spec.input(i).dims),
        "; it must be a scalar"));
  }
  if (is_integer) return MakeIntegerClip(spec);
  const ClipKernels* const kernels = spec.kernels().clip;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(
      spec.RequireKernels(kernels->forward, kernels->backward));
  return std::make_unique<ClipOp>(spec.input(0).count(), *kernels);
}

}  // namespace syncline::worker
