// Comparisons and logic: results are bool, and no gradient flows.

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/comparison_kernels.h"
#include "kernels/device/kernel_table.h"
#include "kernels/elementwise/broadcast.h"
#include "worker/ops/without_gradient.h"

namespace syncline::worker {
namespace {

// Two inputs of one type, broadcast, to bool; with `swapped` the second is
// compared with the first. No gradient. And, Or and Xor take bool, the others
// any type, Equal bool too. NaN equals and orders nothing.
absl::StatusOr<std::unique_ptr<Op>> MakeComparison(const OpSpec& spec,
                                                   ComparisonFunction function,
                                                   bool swapped = false) {
  const size_t left = swapped ? 1 : 0;
  const TensorType& a = spec.input(left);
  const TensorType& b = spec.input(1 - left);
  if (a.dtype != b.dtype) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the inputs are ", DTypeName(spec.input(0).dtype), " and ",
        DTypeName(spec.input(1).dtype), "; they must be of one type"));
  }
  const ComparisonKernels* const family = spec.kernels().comparison;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family));
  const ComparisonKernels::Compare compare = (*family)[function][a.dtype];
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(compare));
  SYNCLINE_ASSIGN_OR_RETURN(const Dims out, BroadcastDims(a.dims, b.dims));
  const Strided<2> walk(
      out, {BroadcastStrides(a.dims, out), BroadcastStrides(b.dims, out)});
  return MakeOpWithoutGradient([walk, compare, left](const Op::Tensors& t) {
    compare(*t.stream, walk, t.inputs[left], t.inputs[1 - left],
            static_cast<uint8_t*>(t.outputs[0]));
    return absl::OkStatus();
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeEqual(const OpSpec& spec) {
  return MakeComparison(spec, ComparisonFunction::kEqual);
}

absl::StatusOr<std::unique_ptr<Op>> MakeLess(const OpSpec& spec) {
  return MakeComparison(spec, ComparisonFunction::kLess);
}

absl::StatusOr<std::unique_ptr<Op>> MakeLessOrEqual(const OpSpec& spec) {
  return MakeComparison(spec, ComparisonFunction::kLessOrEqual);
}

absl::StatusOr<std::unique_ptr<Op>> MakeGreater(const OpSpec& spec) {
  return MakeComparison(spec, ComparisonFunction::kLess, /*swapped=*/true);
}

absl::StatusOr<std::unique_ptr<Op>> MakeGreaterOrEqual(const OpSpec& spec) {
  return MakeComparison(spec, ComparisonFunction::kLessOrEqual,
                        /*swapped=*/true);
}

absl::StatusOr<std::unique_ptr<Op>> MakeAnd(const OpSpec& spec) {
  return MakeComparison(spec, ComparisonFunction::kAnd);
}

absl::StatusOr<std::unique_ptr<Op>> MakeOr(const OpSpec& spec) {
  return MakeComparison(spec, ComparisonFunction::kOr);
}

absl::StatusOr<std::unique_ptr<Op>> MakeXor(const OpSpec& spec) {
  return MakeComparison(spec, ComparisonFunction::kXor);
}

absl::StatusOr<std::unique_ptr<Op>> MakeNot(const OpSpec& spec) {
  const ComparisonKernels* const family = spec.kernels().comparison;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family));
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family->logical_not));
  return MakeOpWithoutGradient(
      [logical_not = family->logical_not,
       count = spec.input(0).count()](const Op::Tensors& t) {
        logical_not(*t.stream, count, static_cast<const uint8_t*>(t.inputs[0]),
                    static_cast<uint8_t*>(t.outputs[0]));
        return absl::OkStatus();
      });
}

}  // namespace syncline::worker
