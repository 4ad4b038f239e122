#include "kernels/elementwise/pointwise.h"
#include "worker/ops/integers.h"
#include "worker/ops/unary.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeNeg(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerUnary(spec, IntegerUnary::kNegate);
  }
  return MakeUnary(spec,
                   {Negate, NegateGradient, UnaryKernels::Saved::kNothing});
}

}  // namespace syncline::worker
