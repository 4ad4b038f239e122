// Arithmetic of two operands, element by element, broadcast: sums, products,
// remainders, powers.

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/power_kernels.h"
#include "kernels/elementwise/broadcast.h"
#include "worker/ops/elementwise/binary_op.h"
#include "worker/ops/elementwise/integers.h"
#include "worker/ops/op.h"

namespace syncline::worker {
namespace {

Op::Traits PowTraits(const OpSpec& spec, const Broadcast& shape) {
  Op::Traits traits;
  if (spec.WantsGradient(0)) traits.backward_inputs |= 0b11;
  if (spec.WantsGradient(1)) {
    traits.backward_inputs |= 0b01;
    traits.backward_outputs = 1;
  }
  if (shape.a_count == shape.count) {
    traits.in_place_input = 0;
    traits.gradient_in_place = true;
  }
  return traits;
}

// Exponents may be of another type than what is raised: then they are known
// when the Op is made.
class PowOp : public Op {
 public:
  PowOp(const OpSpec& spec, const Broadcast& shape, const PowerKernels& kernels,
        DeviceMemory exponents)
      : Op(PowTraits(spec, shape)),
        shape_(shape),
        kernels_(kernels),
        exponents_(std::move(exponents)) {}

  absl::Status Forward(const Tensors& t) override {
    kernels_.forward(*t.stream, shape_, t.in(0), Exponents(t), t.out(0));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    if (g.in(1) != nullptr) {
      kernels_.backward_b(*t.stream, shape_, t.in(0), t.out(0), g.out(),
                          g.accumulate(1), g.in(1));
    }
    if (g.in(0) != nullptr) {
      kernels_.backward_a(*t.stream, shape_, t.in(0), Exponents(t), g.out(),
                          g.accumulate(0), g.in(0));
    }
    return absl::OkStatus();
  }

 private:
  const float* Exponents(const Tensors& t) const {
    if (exponents_.data() != nullptr) return exponents_.as<float>();
    return t.in(1);
  }

  const Broadcast shape_;
  const PowerKernels kernels_;
  const DeviceMemory exponents_;
};

template <typename T>
absl::StatusOr<DeviceMemory> Converted(const OpSpec& spec) {
  const T* const values = static_cast<const T*>(spec.input(1).constant);
  const std::vector<float> floats(values, values + spec.input(1).count());
  return Upload(*spec.device, absl::MakeConstSpan(floats));
}

// None where they are float32 and need no conversion.
absl::StatusOr<DeviceMemory> ConvertedExponents(const OpSpec& spec) {
  const TensorType& type = spec.input(1);
  if (type.dtype == DType::kFloat32) return DeviceMemory();
  if (type.constant != nullptr) {
    if (type.dtype == DType::kInt64) return Converted<int64_t>(spec);
    if (type.dtype == DType::kInt32) return Converted<int32_t>(spec);
    if (type.dtype == DType::kFloat64) return Converted<double>(spec);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the exponent is ", DTypeName(type.dtype),
      "; it must be float32, or a constant of int32, int64 or float64"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeAdd(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerArithmetic(spec, IntegerFunction::kAdd);
  }
  return MakeBinary(spec, BinaryFunction::kAdd);
}

absl::StatusOr<std::unique_ptr<Op>> MakeSub(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerArithmetic(spec, IntegerFunction::kSubtract);
  }
  return MakeBinary(spec, BinaryFunction::kSubtract);
}

absl::StatusOr<std::unique_ptr<Op>> MakeMul(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerArithmetic(spec, IntegerFunction::kMultiply);
  }
  return MakeBinary(spec, BinaryFunction::kMultiply);
}

absl::StatusOr<std::unique_ptr<Op>> MakeDiv(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerArithmetic(spec, IntegerFunction::kDivide);
  }
  return MakeBinary(spec, BinaryFunction::kDivide);
}

absl::StatusOr<std::unique_ptr<Op>> MakeMod(const OpSpec& spec) {
  const bool truncates = spec.node->Int("fmod", 0) != 0;
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerArithmetic(spec, truncates ? IntegerFunction::kRemainder
                                                 : IntegerFunction::kModulo);
  }
  if (!truncates) {
    return absl::InvalidArgumentError(
        "fmod is 0, which ONNX defines for integers only");
  }
  return MakeBinary(spec, BinaryFunction::kRemainder);
}

absl::StatusOr<std::unique_ptr<Op>> MakePow(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerArithmetic(spec, IntegerFunction::kPower);
  }
  if (spec.input(0).dtype != DType::kFloat32) {
    return absl::InvalidArgumentError(
        absl::StrCat("input 0 is ", DTypeName(spec.input(0).dtype),
                     "; only float32 is computed"));
  }
  const PowerKernels* const kernels = spec.kernels().power;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(
      kernels->forward, kernels->backward_a, kernels->backward_b));
  SYNCLINE_ASSIGN_OR_RETURN(DeviceMemory exponents, ConvertedExponents(spec));
  SYNCLINE_ASSIGN_OR_RETURN(
      const Broadcast shape,
      MakeBroadcast(spec.input(0).dims, spec.input(1).dims));
  return std::make_unique<PowOp>(spec, shape, *kernels, std::move(exponents));
}

}  // namespace syncline::worker
