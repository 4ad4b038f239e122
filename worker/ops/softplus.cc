#include "kernels/elementwise/scalar_function.h"
#include "worker/ops/pointwise_op.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeSoftplus(const OpSpec& spec) {
  return MakePointwise(spec, scalar::Softplus());
}

}  // namespace syncline::worker
