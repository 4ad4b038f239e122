#ifndef SYNCLINE_WORKER_OPS_CLASS_LOSS_OP_H_
#define SYNCLINE_WORKER_OPS_CLASS_LOSS_OP_H_

#include "worker/ops/op.h"

namespace syncline::worker {

// The loss of scores [N, classes, ...] with labels [N, ...], and perhaps a
// weight for each class: minus the log probability of each label. The scores
// are log probabilities, or with `normalizes` become ones by a softmax, which
// are output 1. No gradient flows to the labels and the weights. A label that
// is "ignore_index" costs nothing; other ones that are out of range end the
// step.
absl::StatusOr<std::unique_ptr<Op>> MakeClassLoss(const OpSpec& spec,
                                                  bool normalizes);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_CLASS_LOSS_OP_H_
