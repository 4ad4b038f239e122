#include "kernels/elementwise/elementwise.h"
#include "worker/ops/binary.h"
#include "worker/ops/integers.h"

namespace syncline::worker {
namespace {

void GradientA(const BinaryBackward& in) {
  AddGradient(in.shape, Side::kA, 1, in.dy, in.accumulate, in.dx);
}

void GradientB(const BinaryBackward& in) {
  AddGradient(in.shape, Side::kB, -1, in.dy, in.accumulate, in.dx);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeSub(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerArithmetic(spec, IntegerFunction::kSubtract);
  }
  return MakeBinary(spec, {.forward = Subtract,
                           .gradient_a = {GradientA},
                           .gradient_b = {GradientB}});
}

}  // namespace syncline::worker
