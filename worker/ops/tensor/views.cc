#include "worker/ops/tensor/views.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/block_copy_kernels.h"
#include "kernels/device/kernel_table.h"

namespace syncline::worker {
namespace {

class ViewOp : public Op {
 public:
  ViewOp(const OpSpec& spec, const BlockCopyKernels& kernels)
      : Op({.in_place_input = 0, .is_view = true, .gradient_in_place = true}),
        kernels_(kernels),
        row_{.width = spec.input(0).count()},
        bytes_(row_.width * DTypeBytes(spec.input(0).dtype)) {}

  absl::Status Forward(const Tensors& t) override {
    t.stream->Copy(t.outputs[0], t.inputs[0], bytes_);
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    kernels_.gradient(*t.stream, row_, g.out(), g.accumulate(0), g.in(0));
    return absl::OkStatus();
  }

 private:
  const BlockCopyKernels kernels_;
  const BlockRows row_;
  const size_t bytes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeView(const OpSpec& spec) {
  if (spec.input(0).count() != spec.output(0).count()) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape ", DimsToString(spec.input(0).dims),
                     " cannot become ", DimsToString(spec.output(0).dims)));
  }
  SYNCLINE_RETURN_IF_ERROR(spec.RequireOneType(0b1));
  const BlockCopyKernels* const kernels = spec.kernels().block_copy;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels->gradient));
  return std::make_unique<ViewOp>(spec, *kernels);
}

absl::StatusOr<std::unique_ptr<Op>> MakeFlatten(const OpSpec& spec) {
  return MakeView(spec);
}

absl::StatusOr<std::unique_ptr<Op>> MakeIdentity(const OpSpec& spec) {
  return MakeView(spec);
}

absl::StatusOr<std::unique_ptr<Op>> MakeReshape(const OpSpec& spec) {
  return MakeView(spec);
}

absl::StatusOr<std::unique_ptr<Op>> MakeSqueeze(const OpSpec& spec) {
  return MakeView(spec);
}

absl::StatusOr<std::unique_ptr<Op>> MakeUnsqueeze(const OpSpec& spec) {
  return MakeView(spec);
}

}  // namespace syncline::worker
