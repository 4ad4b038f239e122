#include "kernels/elementwise/elementwise.h"
#include "worker/ops/binary.h"
#include "worker/ops/integers.h"

namespace syncline::worker {
namespace {

template <Side side>
void Gradient(const BinaryBackward& in) {
  AddGradient(in.shape, side, 1, in.dy, in.accumulate, in.dx);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeAdd(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerArithmetic(spec, IntegerFunction::kAdd);
  }
  return MakeBinary(spec, {.forward = Add,
                           .gradient_a = {Gradient<Side::kA>},
                           .gradient_b = {Gradient<Side::kB>}});
}

}  // namespace syncline::worker
