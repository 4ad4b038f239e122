#include "worker/ops/class_loss_op.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeNegativeLogLikelihoodLoss(
    const OpSpec& spec) {
  return MakeClassLoss(spec, /*normalizes=*/false);
}

}  // namespace syncline::worker
