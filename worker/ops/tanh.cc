#include "kernels/elementwise/activation.h"
#include "worker/ops/unary.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeTanh(const OpSpec& spec) {
  return MakeUnary(spec, {Tanh, TanhGradient, UnaryKernels::Saved::kOutput});
}

}  // namespace syncline::worker
