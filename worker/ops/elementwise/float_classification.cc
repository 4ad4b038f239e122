// IsInf and IsNaN, of float32 and float64.

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/float_class_kernels.h"
#include "kernels/device/kernel_table.h"
#include "worker/ops/without_gradient.h"

namespace syncline::worker {
namespace {

absl::Status RequireFloat(const OpSpec& spec) {
  const DType dtype = spec.input(0).dtype;
  if (dtype == DType::kFloat32 || dtype == DType::kFloat64) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("input 0 is ", DTypeName(dtype), "; it must be float"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeIsInf(const OpSpec& spec) {
  SYNCLINE_RETURN_IF_ERROR(RequireFloat(spec));
  const FloatClassKernels* const family = spec.kernels().float_class;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family));
  const auto is_infinity = family->is_infinity[spec.input(0).dtype];
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(is_infinity));
  const FloatClassKernels::Infinities which = {
      .positive = spec.node->Int("detect_positive", 1) != 0,
      .negative = spec.node->Int("detect_negative", 1) != 0};
  return MakeOpWithoutGradient(
      [is_infinity, which,
       count = spec.input(0).count()](const Op::Tensors& t) {
        is_infinity(*t.stream, which, count, t.inputs[0],
                    static_cast<uint8_t*>(t.outputs[0]));
        return absl::OkStatus();
      });
}

absl::StatusOr<std::unique_ptr<Op>> MakeIsNaN(const OpSpec& spec) {
  SYNCLINE_RETURN_IF_ERROR(RequireFloat(spec));
  const FloatClassKernels* const family = spec.kernels().float_class;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family));
  const auto is_nan = family->is_nan[spec.input(0).dtype];
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(is_nan));
  return MakeOpWithoutGradient([is_nan, count = spec.input(0).count()](
                                   const Op::Tensors& t) {
    is_nan(*t.stream, count, t.inputs[0], static_cast<uint8_t*>(t.outputs[0]));
    return absl::OkStatus();
  });
}

}  // namespace syncline::worker
