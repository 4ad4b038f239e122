// Arithmetic of two operands, element by element, broadcast: sums, products,
// remainders, powers.

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/elementwise/binary_loop.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/power.h"
#include "worker/ops/elementwise/binary_op.h"
#include "worker/ops/elementwise/integers.h"
#include "worker/ops/op.h"

namespace syncline::worker {
namespace {

template <Side side>
void AddendGradient(const BinaryBackward& in) {
  AddGradient(in.shape, side, 1, in.dy, in.accumulate, in.dx);
}

void MinuendGradient(const BinaryBackward& in) {
  AddGradient(in.shape, Side::kA, 1, in.dy, in.accumulate, in.dx);
}

void SubtrahendGradient(const BinaryBackward& in) {
  AddGradient(in.shape, Side::kB, -1, in.dy, in.accumulate, in.dx);
}

void FirstFactorGradient(const BinaryBackward& in) {
  MultiplyGradient(in.shape, Side::kA, in.b, in.dy, in.accumulate, in.dx);
}

void SecondFactorGradient(const BinaryBackward& in) {
  MultiplyGradient(in.shape, Side::kB, in.a, in.dy, in.accumulate, in.dx);
}

void DividendGradient(const BinaryBackward& in) {
  DivideGradientA(in.shape, in.b, in.dy, in.accumulate, in.dx);
}

void DivisorGradient(const BinaryBackward& in) {
  DivideGradientB(in.shape, in.b, in.y, in.dy, in.accumulate, in.dx);
}

// The remainder of a division towards 0, which is all that ONNX defines for
// floating point.
void FloatRemainder(const Broadcast& s, const float* a, const float* b,
                    float* y) {
  ApplyBinary(s, a, b, y, [](float p, float q) { return std::fmod(p, q); });
}

void RemainderDividendGradient(const BinaryBackward& in) {
  AddGradient(in.shape, Side::kA, 1, in.dy, in.accumulate, in.dx);
}

void RemainderDivisorGradient(const BinaryBackward& in) {
  const auto term = [&](int64_t o, int64_t a, int64_t b) {
    return -in.dy[o] * std::trunc(in.a[a] / in.b[b]);
  };
  BinaryGradient(in.shape, Side::kB, in.accumulate, in.dx, term);
}

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
  PowOp(const OpSpec& spec, Broadcast shape, std::vector<float> exponents)
      : Op(PowTraits(spec, shape)),
        shape_(std::move(shape)),
        exponents_(std::move(exponents)) {}

  absl::Status Forward(const Tensors& t) override {
    Power(shape_, t.in(0), Exponents(t), t.out(0));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    if (g.in(1) != nullptr) {
      PowerGradientB(shape_, t.in(0), t.out(0), g.out(), g.accumulate(1),
                     g.in(1));
    }
    if (g.in(0) != nullptr) {
      PowerGradientA(shape_, t.in(0), Exponents(t), g.out(), g.accumulate(0),
                     g.in(0));
    }
    return absl::OkStatus();
  }

 private:
  const float* Exponents(const Tensors& t) const {
    return exponents_.empty() ? t.in(1) : exponents_.data();
  }

  const Broadcast shape_;
  const std::vector<float> exponents_;
};

template <typename T>
std::vector<float> ToFloats(const TensorType& type) {
  const T* const values = static_cast<const T*>(type.constant);
  return std::vector<float>(values, values + type.count());
}

// Empty where they are float32 and need no conversion.
absl::StatusOr<std::vector<float>> ConvertedExponents(const TensorType& type) {
  if (type.dtype == DType::kFloat32) {
    return std::vector<float>();
  }
  if (type.constant != nullptr) {
    if (type.dtype == DType::kInt64) return ToFloats<int64_t>(type);
    if (type.dtype == DType::kInt32) return ToFloats<int32_t>(type);
    if (type.dtype == DType::kFloat64) return ToFloats<double>(type);
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
  return MakeBinary(spec, {.forward = Add,
                           .gradient_a = {AddendGradient<Side::kA>},
                           .gradient_b = {AddendGradient<Side::kB>}});
}

absl::StatusOr<std::unique_ptr<Op>> MakeSub(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerArithmetic(spec, IntegerFunction::kSubtract);
  }
  return MakeBinary(spec, {.forward = Subtract,
                           .gradient_a = {MinuendGradient},
                           .gradient_b = {SubtrahendGradient}});
}

absl::StatusOr<std::unique_ptr<Op>> MakeMul(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerArithmetic(spec, IntegerFunction::kMultiply);
  }
  return MakeBinary(
      spec,
      {.forward = Multiply,
       .gradient_a = {.run = FirstFactorGradient, .reads_inputs = 0b10},
       .gradient_b = {.run = SecondFactorGradient, .reads_inputs = 0b01}});
}

absl::StatusOr<std::unique_ptr<Op>> MakeDiv(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerArithmetic(spec, IntegerFunction::kDivide);
  }
  return MakeBinary(
      spec, {.forward = Divide,
             .gradient_a = {.run = DividendGradient, .reads_inputs = 0b10},
             .gradient_b = {.run = DivisorGradient,
                            .reads_inputs = 0b10,
                            .reads_output = true}});
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
  return MakeBinary(spec, {.forward = FloatRemainder,
                           .gradient_a = {RemainderDividendGradient},
                           .gradient_b = {.run = RemainderDivisorGradient,
                                          .reads_inputs = 0b11}});
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
  SYNCLINE_ASSIGN_OR_RETURN(std::vector<float> exponents,
                            ConvertedExponents(spec.input(1)));
  SYNCLINE_ASSIGN_OR_RETURN(
      Broadcast shape, MakeBroadcast(spec.input(0).dims, spec.input(1).dims));
  return std::make_unique<PowOp>(spec, std::move(shape), std::move(exponents));
}

}  // namespace syncline::worker
