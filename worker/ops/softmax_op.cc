#include "worker/ops/softmax_op.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace syncline {
namespace {

class SoftmaxOp : public Op {
 public:
  SoftmaxOp(const SoftmaxShape& shape, const SoftmaxKernels& kernels)
      : Op({.backward_outputs = 1,
            .in_place_input = 0,
            .gradient_in_place = true}),
        shape_(shape),
        kernels_(kernels) {}

  absl::Status Forward(const Tensors& t) override {
    kernels_.forward(shape_, t.in(0), t.out(0));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    kernels_.backward(shape_, t.out(0), g.out(), g.accumulate(0), g.in(0));
    return absl::OkStatus();
  }

 private:
  const SoftmaxShape shape_;
  const SoftmaxKernels kernels_;
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

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeSoftmaxOp(
    const OpSpec& spec, const SoftmaxKernels& kernels) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  SYNCLINE_ASSIGN_OR_RETURN(const SoftmaxShape shape,
                            ShapeOf(*spec.node, spec.input(0).dims));
  return std::make_unique<SoftmaxOp>(shape, kernels);
}

}  // namespace syncline
