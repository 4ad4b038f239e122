#include "kernels/elementwise.h"
#include "worker/ops/binary.h"

namespace syncline {
namespace {

void GradientA(const BinaryBackward& in) {
  AddGradient(in.shape, Side::kA, 1, in.dy, in.accumulate, in.dx);
}

void GradientB(const BinaryBackward& in) {
  AddGradient(in.shape, Side::kB, -1, in.dy, in.accumulate, in.dx);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeSub(const OpSpec& spec) {
  return MakeBinary(spec, {.forward = Subtract,
                           .gradient_a = {GradientA},
                           .gradient_b = {GradientB}});
}

}  // namespace syncline
