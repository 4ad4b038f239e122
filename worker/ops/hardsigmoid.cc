#include "kernels/elementwise/scalar_function.h"
#include "worker/ops/pointwise_op.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeHardSigmoid(const OpSpec& spec) {
  return MakePointwise(spec,
                       scalar::HardSigmoid{spec.node->Float("alpha", 0.2f),
                                           spec.node->Float("beta", 0.5f)});
}

}  // namespace syncline::worker
