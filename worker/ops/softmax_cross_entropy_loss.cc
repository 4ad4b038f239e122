#include "worker/ops/class_loss_op.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeSoftmaxCrossEntropyLoss(
    const OpSpec& spec) {
  return MakeClassLoss(spec, /*normalizes=*/true);
}

}  // namespace syncline::worker
