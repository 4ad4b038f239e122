#include "kernels/elementwise/pointwise.h"
#include "worker/ops/unary.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeErf(const OpSpec& spec) {
  return MakeUnary(spec, {ErrorFunction, ErrorFunctionGradient,
                          UnaryKernels::Saved::kInput});
}

}  // namespace syncline::worker
