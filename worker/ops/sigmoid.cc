#include "kernels/elementwise/activation.h"
#include "worker/ops/unary.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeSigmoid(const OpSpec& spec) {
  return MakeUnary(spec,
                   {Sigmoid, SigmoidGradient, UnaryKernels::Saved::kOutput});
}

}  // namespace syncline::worker
