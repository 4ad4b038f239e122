// Arithmetic on one number, element by element: magnitude and sign, rounding,
// powers, exponentials and logarithms.

#include <cmath>

#include "kernels/elementwise/pointwise.h"
#include "worker/ops/elementwise/integers.h"
#include "worker/ops/elementwise/pointwise_op.h"
#include "worker/ops/elementwise/unary_op.h"

namespace syncline::worker {
namespace {

struct Magnitude {
  float Value(float x) const { return std::fabs(x); }
  float Derivative(float x) const {
    return x > 0 ? 1.0f : (x < 0 ? -1.0f : 0.0f * x);
  }
};

struct Logarithm {
  float Value(float x) const { return std::log(x); }
  float Derivative(float x) const { return 1.0f / x; }
};

struct Inverse {
  float Value(float x) const { return 1.0f / x; }
  float Derivative(float x) const { return -1.0f / (x * x); }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeAbs(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerUnary(spec, IntegerUnary::kMagnitude);
  }
  return MakePointwise(spec, Magnitude{});
}

absl::StatusOr<std::unique_ptr<Op>> MakeCeil(const OpSpec& spec) {
  return MakeStepFunction(spec, [](float x) { return std::ceil(x); });
}

absl::StatusOr<std::unique_ptr<Op>> MakeErf(const OpSpec& spec) {
  return MakeUnary(spec, {ErrorFunction, ErrorFunctionGradient,
                          UnaryKernels::Saved::kInput});
}

absl::StatusOr<std::unique_ptr<Op>> MakeExp(const OpSpec& spec) {
  return MakeUnary(spec, {Exp, ExpGradient, UnaryKernels::Saved::kOutput});
}

absl::StatusOr<std::unique_ptr<Op>> MakeFloor(const OpSpec& spec) {
  return MakeStepFunction(spec, [](float x) { return std::floor(x); });
}

absl::StatusOr<std::unique_ptr<Op>> MakeLog(const OpSpec& spec) {
  return MakePointwise(spec, Logarithm{});
}

absl::StatusOr<std::unique_ptr<Op>> MakeNeg(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerUnary(spec, IntegerUnary::kNegate);
  }
  return MakeUnary(spec,
                   {Negate, NegateGradient, UnaryKernels::Saved::kNothing});
}

absl::StatusOr<std::unique_ptr<Op>> MakeReciprocal(const OpSpec& spec) {
  return MakePointwise(spec, Inverse{});
}

absl::StatusOr<std::unique_ptr<Op>> MakeRound(const OpSpec& spec) {
  return MakeStepFunction(spec, [](float x) { return std::nearbyint(x); });
}

absl::StatusOr<std::unique_ptr<Op>> MakeSign(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerUnary(spec, IntegerUnary::kSign);
  }
  return MakeStepFunction(
      spec, [](float x) { return x > 0 ? 1.0f : (x < 0 ? -1.0f : x); });
}

absl::StatusOr<std::unique_ptr<Op>> MakeSqrt(const OpSpec& spec) {
  return MakeUnary(
      spec, {SquareRoot, SquareRootGradient, UnaryKernels::Saved::kOutput});
}

}  // namespace syncline::worker
