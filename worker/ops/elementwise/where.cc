#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/select_kernels.h"
#include "kernels/elementwise/broadcast.h"
#include "kernels/elementwise/strided.h"
#include "worker/ops/op.h"

namespace syncline::worker {
namespace {

class WhereOp : public Op {
 public:
  WhereOp(const OpSpec& spec, const Strided<3>& walk,
          const SelectKernels& kernels)
      : Op({.backward_inputs = 0b001}),
        kernels_(kernels),
        walk_(walk),
        element_bytes_(DTypeBytes(spec.input(1).dtype)),
        chosen_(OverCondition(spec, 1)),
        other_(OverCondition(spec, 2)) {}

  absl::Status Forward(const Tensors& t) override {
    kernels_.forward(*t.stream, walk_, element_bytes_, Condition(t),
                     t.inputs[1], t.inputs[2], t.outputs[0]);
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    if (g.in(2) != nullptr) {
      kernels_.backward(*t.stream, other_, /*chosen=*/false, Condition(t),
                        g.out(), g.accumulate(2), g.in(2));
    }
    if (g.in(1) != nullptr) {
      kernels_.backward(*t.stream, chosen_, /*chosen=*/true, Condition(t),
                        g.out(), g.accumulate(1), g.in(1));
    }
    return absl::OkStatus();
  }

 private:
  static const uint8_t* Condition(const Tensors& t) {
    return static_cast<const uint8_t*>(t.inputs[0]);
  }
  // An operand and the condition under the result.
  static Broadcast OverCondition(const OpSpec& spec, size_t input) {
    return MakeBroadcastUnder(spec.input(input).dims, spec.input(0).dims,
                              spec.output(0).dims);
  }

  const SelectKernels kernels_;
  const Strided<3> walk_;  // the three inputs under the result
  const size_t element_bytes_;
  const Broadcast chosen_, other_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeWhere(const OpSpec& spec) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireOneType(0b110));
  if (spec.input(0).dtype != DType::kBool ||
      spec.input(1).dtype != spec.input(2).dtype) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the inputs are ", DTypeName(spec.input(0).dtype), ", ",
        DTypeName(spec.input(1).dtype), " and ", DTypeName(spec.input(2).dtype),
        "; they must be bool and two of one type"));
  }
  const SelectKernels* const kernels = spec.kernels().select;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(
      spec.RequireKernels(kernels->forward, kernels->backward));
  Dims out = spec.input(0).dims;
  for (size_t i = 1; i < 3; ++i) {
    SYNCLINE_ASSIGN_OR_RETURN(out, BroadcastDims(out, spec.input(i).dims));
  }
  const Strided<3> walk(out, {BroadcastStrides(spec.input(0).dims, out),
                              BroadcastStrides(spec.input(1).dims, out),
                              BroadcastStrides(spec.input(2).dims, out)});
  return std::make_unique<WhereOp>(spec, walk, *kernels);
}

}  // namespace syncline::worker
