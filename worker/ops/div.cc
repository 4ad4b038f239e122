#include "kernels/elementwise/elementwise.h"
#include "worker/ops/binary.h"
#include "worker/ops/integers.h"

namespace syncline::worker {
namespace {

void GradientA(const BinaryBackward& in) {
  DivideGradientA(in.shape, in.b, in.dy, in.accumulate, in.dx);
}

void GradientB(const BinaryBackward& in) {
  DivideGradientB(in.shape, in.b, in.y, in.dy, in.accumulate, in.dx);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeDiv(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerArithmetic(spec, IntegerFunction::kDivide);
  }
  return MakeBinary(
      spec,
      {.forward = Divide,
       .gradient_a = {.run = GradientA, .reads_inputs = 0b10},
       .gradient_b = {
           .run = GradientB, .reads_inputs = 0b10, .reads_output = true}});
}

}  // namespace syncline::worker
