#ifndef SYNCLINE_WORKER_OPS_LAYER_NORM_OP_H_
#define SYNCLINE_WORKER_OPS_LAYER_NORM_OP_H_

#include "worker/ops/op.h"

namespace syncline::worker {

// LayerNormalization and, with `centred` false, RMSNormalization: over all
// dimensions from `axis` (default -1) on. Scale and bias have as many elements
// as these. The optional outputs Mean and InvStdDev are for reading: no
// gradient flows through them.
absl::StatusOr<std::unique_ptr<Op>> MakeLayerNormOp(const OpSpec& spec,
                                                    bool centred);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_LAYER_NORM_OP_H_
