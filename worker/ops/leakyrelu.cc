#include "kernels/elementwise/scalar_function.h"
#include "worker/ops/pointwise_op.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeLeakyRelu(const OpSpec& spec) {
  return MakePointwise(spec,
                       scalar::LeakyRelu{spec.node->Float("alpha", 0.01f)});
}

}  // namespace syncline::worker
