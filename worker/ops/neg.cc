#include "kernels/pointwise.h"
#include "worker/ops/unary.h"

namespace syncline {

absl::StatusOr<std::unique_ptr<Op>> MakeNeg(const OpSpec& spec) {
  return MakeUnary(spec,
                   {Negate, NegateGradient, UnaryKernels::Saved::kNothing});
}

}  // namespace syncline
