// ReduceMax, ReduceMin and ArgMax.

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/extremum_kernels.h"
#include "kernels/device/kernel_table.h"
#include "worker/ops/axes.h"
#include "worker/ops/elementwise/integers.h"
#include "worker/ops/reduction_shape.h"
#include "worker/ops/without_gradient.h"

namespace syncline::worker {
namespace {

// The workspace says where in the input each result is from.
class ReduceExtremumOp : public Op {
 public:
  ReduceExtremumOp(const Broadcast& shape, const ExtremumKernels::Pair& kernels)
      : Op({.workspace_bytes =
                static_cast<int64_t>(shape.b_count * sizeof(int64_t))}),
        shape_(shape),
        kernels_(kernels) {}

  absl::Status Forward(const Tensors& t) override {
    kernels_.forward(*t.stream, shape_, t.in(0), t.out(0),
                     static_cast<int64_t*>(t.workspace));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    kernels_.backward(*t.stream, shape_,
                      static_cast<const int64_t*>(t.workspace), g.out(),
                      g.accumulate(0), g.in(0));
    return absl::OkStatus();
  }

 private:
  const Broadcast shape_;
  const ExtremumKernels::Pair kernels_;
};

// The largest or smallest over the axes. The first of equals has the whole
// gradient; a NaN wins.
absl::StatusOr<std::unique_ptr<Op>> MakeReduceExtremum(
    const OpSpec& spec, ExtremumKernels::Pair ExtremumKernels::*which) {
  SYNCLINE_ASSIGN_OR_RETURN(const Broadcast shape, ReductionShape(spec));
  const ExtremumKernels* const family = spec.kernels().extremum;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family));
  const ExtremumKernels::Pair& kernels = family->*which;
  SYNCLINE_RETURN_IF_ERROR(
      spec.RequireKernels(kernels.forward, kernels.backward));
  return std::make_unique<ReduceExtremumOp>(shape, kernels);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeReduceMax(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerReduction(spec, IntegerFunction::kMax);
  }
  return MakeReduceExtremum(spec, &ExtremumKernels::largest);
}

absl::StatusOr<std::unique_ptr<Op>> MakeReduceMin(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerReduction(spec, IntegerFunction::kMin);
  }
  return MakeReduceExtremum(spec, &ExtremumKernels::smallest);
}

absl::StatusOr<std::unique_ptr<Op>> MakeArgMax(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const int64_t at,
      ResolveAxis(spec.node->Int("axis", 0), spec.input(0).dims.size()));
  const AroundAxis axis = SplitAt(spec.input(0).dims, at);
  if (axis.n == 0) {
    return absl::InvalidArgumentError("an empty dimension has no largest");
  }
  const ArgMaxShape shape = {
      .outer = axis.outer,
      .n = axis.n,
      .inner = axis.inner,
      .dtype = spec.input(0).dtype,
      .last = spec.node->Int("select_last_index", 0) != 0};
  const ExtremumKernels* const kernels = spec.kernels().extremum;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels->arg_max));
  return MakeOpWithoutGradient([arg_max = kernels->arg_max,
                                shape](const Op::Tensors& t) {
    arg_max(*t.stream, shape, t.inputs[0], static_cast<int64_t*>(t.outputs[0]));
    return absl::OkStatus();
  });
}

}  // namespace syncline::worker
