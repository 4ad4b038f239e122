#include "kernels/elementwise/elementwise.h"
#include "worker/ops/binary.h"
#include "worker/ops/integers.h"

namespace syncline::worker {
namespace {

void GradientA(const BinaryBackward& in) {
  MultiplyGradient(in.shape, Side::kA, in.b, in.dy, in.accumulate, in.dx);
}

void GradientB(const BinaryBackward& in) {
  MultiplyGradient(in.shape, Side::kB, in.a, in.dy, in.accumulate, in.dx);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeMul(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerArithmetic(spec, IntegerFunction::kMultiply);
  }
  return MakeBinary(spec,
                    {.forward = Multiply,
                     .gradient_a = {.run = GradientA, .reads_inputs = 0b10},
                     .gradient_b = {.run = GradientB, .reads_inputs = 0b01}});
}

}  // namespace syncline::worker
