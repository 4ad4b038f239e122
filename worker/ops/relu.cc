#include "kernels/elementwise/activation.h"
#include "worker/ops/unary.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeRelu(const OpSpec& spec) {
  return MakeUnary(spec, {Relu, ReluGradient, UnaryKernels::Saved::kOutput});
}

}  // namespace syncline::worker
