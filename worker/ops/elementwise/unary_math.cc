// Arithmetic on one number, element by element: magnitude and sign, rounding,
// powers, exponentials and logarithms.

#include "worker/ops/elementwise/integers.h"
#include "worker/ops/elementwise/pointwise_op.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeAbs(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerUnary(spec, IntegerUnary::kMagnitude);
  }
  return MakePointwise(spec, PointwiseFunction::kAbs);
}

absl::StatusOr<std::unique_ptr<Op>> MakeCeil(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kCeil);
}

absl::StatusOr<std::unique_ptr<Op>> MakeErf(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kErf);
}

absl::StatusOr<std::unique_ptr<Op>> MakeExp(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kExp);
}

absl::StatusOr<std::unique_ptr<Op>> MakeFloor(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kFloor);
}

absl::StatusOr<std::unique_ptr<Op>> MakeLog(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kLog);
}

absl::StatusOr<std::unique_ptr<Op>> MakeNeg(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerUnary(spec, IntegerUnary::kNegate);
  }
  return MakePointwise(spec, PointwiseFunction::kNegate);
}

absl::StatusOr<std::unique_ptr<Op>> MakeReciprocal(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kReciprocal);
}

absl::StatusOr<std::unique_ptr<Op>> MakeRound(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kRound);
}

absl::StatusOr<std::unique_ptr<Op>> MakeSign(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerUnary(spec, IntegerUnary::kSign);
  }
  return MakePointwise(spec, PointwiseFunction::kSign);
}

absl::StatusOr<std::unique_ptr<Op>> MakeSqrt(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kSqrt);
}

}  // namespace syncline::worker
