#include "worker/ops/elementwise/integers.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/integer_kernels.h"
#include "kernels/device/kernel_table.h"
#include "kernels/elementwise/broadcast.h"
#include "kernels/elementwise/strided.h"
#include "worker/ops/reduction_shape.h"
#include "worker/ops/without_gradient.h"

namespace syncline::worker {
namespace {

// The inputs under the result, one after the other.
class IntegerArithmeticOp : public Op {
 public:
  IntegerArithmeticOp(std::vector<Strided<1>> walks,
                      IntegerKernels::Spread spread,
                      IntegerKernels::Combine combine)
      : Op(Traits()),
        walks_(std::move(walks)),
        spread_(spread),
        combine_(combine) {}

  absl::Status Forward(const Tensors& t) override {
    void* const y = t.outputs[0];
    spread_(*t.stream, walks_[0], t.inputs[0], y);
    for (size_t i = 1; i < walks_.size(); ++i) {
      combine_(*t.stream, walks_[i], t.inputs[i], y, t.errors);
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors&, const Gradients&) override {
    return absl::InternalError("the operator has no gradient");
  }

  absl::Status Explain(const DataError& error) const override {
    const bool is_power =
        static_cast<IntegerError>(error.kind) == IntegerError::kNegativePower;
    return absl::InvalidArgumentError(
        absl::StrCat("element ", error.position,
                     is_power ? ": an integer is raised to a negative power"
                              : ": an integer is divided by 0"));
  }

 private:
  const std::vector<Strided<1>> walks_;
  const IntegerKernels::Spread spread_;
  const IntegerKernels::Combine combine_;
};

absl::Status RequireOneIntegerType(const OpSpec& spec) {
  const DType first = spec.input(0).dtype;
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    const TensorType& input = spec.input(i);
    if (!input.present || (input.dtype == first && IsInteger(first))) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("inputs 0 and ", i, " are ", DTypeName(first), " and ",
                     DTypeName(input.dtype),
                     "; they must be of one integer "
                     "type"));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsInteger(DType dtype) {
  return dtype != DType::kFloat32 && dtype != DType::kFloat64 &&
         !Is16Bit(dtype);
}

absl::StatusOr<std::unique_ptr<Op>> MakeIntegerArithmetic(
    const OpSpec& spec, IntegerFunction function) {
  SYNCLINE_RETURN_IF_ERROR(RequireOneIntegerType(spec));
  const DType dtype = spec.input(0).dtype;
  const IntegerKernels* const family = spec.kernels().integer;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family));
  const IntegerKernels::Spread spread = family->spread[dtype];
  const IntegerKernels::Combine combine = family->Combination(function, dtype);
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(spread, combine));
  Dims out = spec.input(0).dims;
  for (const TensorType& input : spec.inputs) {
    SYNCLINE_ASSIGN_OR_RETURN(out, BroadcastDims(out, input.dims));
  }
  std::vector<Strided<1>> walks;
  for (const TensorType& input : spec.inputs) {
    walks.emplace_back(out,
                       std::array<Dims, 1>{BroadcastStrides(input.dims, out)});
  }
  return std::make_unique<IntegerArithmeticOp>(std::move(walks), spread,
                                               combine);
}

absl::StatusOr<std::unique_ptr<Op>> MakeIntegerUnary(const OpSpec& spec,
                                                     IntegerUnary function) {
  SYNCLINE_RETURN_IF_ERROR(RequireOneIntegerType(spec));
  const IntegerKernels* const family = spec.kernels().integer;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family));
  const IntegerKernels::Unary unary = family->Of(function, spec.input(0).dtype);
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(unary));
  return MakeOpWithoutGradient(
      [unary, count = spec.input(0).count()](const Op::Tensors& t) {
        unary(*t.stream, count, t.inputs[0], t.outputs[0]);
        return absl::OkStatus();
      });
}

absl::StatusOr<std::unique_ptr<Op>> MakeIntegerReduction(
    const OpSpec& spec, IntegerFunction function) {
  SYNCLINE_ASSIGN_OR_RETURN(const Broadcast shape, ReductionShapeOfAny(spec));
  const IntegerKernels* const family = spec.kernels().integer;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family));
  const IntegerKernels::Reduce reduce =
      family->Reduction(function, spec.input(0).dtype);
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(reduce));
  return MakeOpWithoutGradient([shape, reduce](const Op::Tensors& t) {
    reduce(*t.stream, shape, t.inputs[0], t.outputs[0]);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Op>> MakeIntegerClip(const OpSpec& spec) {
  SYNCLINE_RETURN_IF_ERROR(RequireOneIntegerType(spec));
  const IntegerKernels* const family = spec.kernels().integer;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family));
  const IntegerKernels::Clip clip = family->clip[spec.input(0).dtype];
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(clip));
  return MakeOpWithoutGradient(
      [clip, count = spec.input(0).count()](const Op::Tensors& t) {
        clip(*t.stream, count, t.inputs[0], t.in(1), t.in(2), t.outputs[0]);
        return absl::OkStatus();
      });
}

}  // namespace syncline::worker
