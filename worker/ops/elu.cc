#include "kernels/elementwise/scalar_function.h"
#include "worker/ops/pointwise_op.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeElu(const OpSpec& spec) {
  return MakePointwise(spec, scalar::Elu{spec.node->Float("alpha", 1.0f)});
}

}  // namespace syncline::worker
