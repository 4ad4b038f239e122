
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/softmax_kernels.h"
#include "worker/ops/op.h"

namespace syncline::worker {
namespace {

class SoftmaxOp : public Op {
 public:
  SoftmaxOp(const SoftmaxShape& shape, const SoftmaxKernels::Pair& kernels)
      : Op({.backward_outputs = 1,
            .in_place_input = 0,
            .gradient_in_place = true}),
        shape_(shape),
        kernels_(kernels) {}

  absl::Status Forward(const Tensors& t) override {
    kernels_.forward(*t.stream, shape_, t.in(0), t.out(0));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    kernels_.backward(*t.stream, shape_, t.out(0), g.out(), g.accumulate(0),
                      g.in(0));
    return absl::OkStatus();
  }

 private:
  const SoftmaxShape shape_;
  const SoftmaxKernels::Pair kernels_;
};

absl::StatusOr<SoftmaxShape> ShapeOf(const Node& node, const Dims& dims) {
  const bool one_axis = node.since_version >= 13;
  const int64_t rank = static_cast<int64_t>(dims.size());
  int64_t axis = node.Int("axis", one_axis ? -1 : 1);
  // Before opset 13 the axis may be the rank: lines of one element.
  if (axis < -rank || axis > rank || (one_axis && axis >= rank)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "axis ", axis, " is outside the input's ", rank, " dimensions"));
  }
  if (axis < 0) axis += rank;
  const absl::Span<const int64_t> all(dims);
  SoftmaxShape shape;
  shape.outer = ElementCount(all.first(axis));
  shape.n = one_axis ? dims[axis] : ElementCount(all.subspan(axis));
  shape.inner = one_axis ? ElementCount(all.subspan(axis + 1)) : 1;
  return shape;
}

// Softmax and LogSoftmax. From opset 13 on along `axis` (default -1); before,
// over all dimensions from `axis` (default 1) on, seen as one.
absl::StatusOr<std::unique_ptr<Op>> MakeSoftmaxOp(
    const OpSpec& spec, SoftmaxKernels::Pair SoftmaxKernels::*which) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  const SoftmaxKernels* const family = spec.kernels().softmax;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family));
  const SoftmaxKernels::Pair kernels = family->*which;
  SYNCLINE_RETURN_IF_ERROR(
      spec.RequireKernels(kernels.forward, kernels.backward));
  SYNCLINE_ASSIGN_OR_RETURN(const SoftmaxShape shape,
                            ShapeOf(*spec.node, spec.input(0).dims));
  return std::make_unique<SoftmaxOp>(shape, kernels);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeSoftmax(const OpSpec& spec) {
  return MakeSoftmaxOp(spec, &SoftmaxKernels::softmax);
}

absl::StatusOr<std::unique_ptr<Op>> MakeLogSoftmax(const OpSpec& spec) {
  return MakeSoftmaxOp(spec, &SoftmaxKernels::log_softmax);
}

}  // namespace syncline::worker
