#include "kernels/elementwise/pointwise.h"
#include "worker/ops/unary.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeExp(const OpSpec& spec) {
  return MakeUnary(spec, {Exp, ExpGradient, UnaryKernels::Saved::kOutput});
}

}  // namespace syncline::worker
