#include "kernels/elementwise/pointwise.h"
#include "worker/ops/unary.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeSqrt(const OpSpec& spec) {
  return MakeUnary(
      spec, {SquareRoot, SquareRootGradient, UnaryKernels::Saved::kOutput});
}

}  // namespace syncline::worker
