#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/cumulative_sum_kernels.h"
#include "kernels/device/kernel_table.h"
#include "worker/ops/axes.h"
#include "worker/ops/tensor/strided_copy.h"

namespace syncline::worker {
namespace {

class CumSumOp : public Op {
 public:
  CumSumOp(const CumulativeSumShape& shape, DType dtype,
           const CumulativeSumKernels& kernels)
      : Op({.in_place_input = 0, .gradient_in_place = true}),
        shape_(shape),
        dtype_(dtype),
        kernels_(kernels) {}

  absl::Status Forward(const Tensors& t) override {
    kernels_.forward(*t.stream, shape_, dtype_, t.inputs[0], t.outputs[0]);
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    kernels_.backward(*t.stream, shape_, g.out(), g.accumulate(0), g.in(0));
    return absl::OkStatus();
  }

 private:
  const CumulativeSumShape shape_;
  const DType dtype_;
  const CumulativeSumKernels kernels_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeCumSum(const OpSpec& spec) {
  const DType dtype = spec.input(0).dtype;
  if (dtype == DType::kBool || dtype == DType::kUint8) {
    return absl::InvalidArgumentError(
        absl::StrCat("input 0 is ", DTypeName(dtype), ", which is not summed"));
  }
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<int64_t> axes,
                            ConstantInts(spec.input(1), "axis"));
  if (axes.size() != 1) {
    return absl::InvalidArgumentError("axis must be one number");
  }
  SYNCLINE_ASSIGN_OR_RETURN(const int64_t axis,
                            ResolveAxis(axes[0], spec.input(0).dims.size()));
  const AroundAxis around = SplitAt(spec.input(0).dims, axis);
  const CumulativeSumShape shape = {
      .outer = around.outer,
      .n = around.n,
      .inner = around.inner,
      .exclusive = spec.node->Int("exclusive", 0) != 0,
      .reverse = spec.node->Int("reverse", 0) != 0};
  const CumulativeSumKernels* const kernels = spec.kernels().cumulative_sum;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(
      spec.RequireKernels(kernels->forward, kernels->backward));
  return std::make_unique<CumSumOp>(shape, dtype, *kernels);
}

}  // namespace syncline::worker
