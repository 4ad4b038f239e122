#ifndef SYNCLINE_WORKER_OPS_PLANE_NORM_OP_H_
#define SYNCLINE_WORKER_OPS_PLANE_NORM_OP_H_

#include "worker/ops/op.h"

namespace syncline::worker {

// Normalises input 0 [batch, channels, ...] by the moments of each `groups`-th
// of a sample's channels; inputs 1 and 2 are scale and bias, an element each
// for `channels_per_parameter` neighbouring channels. Errors: InvalidArgument:
// shapes that do not fit.
absl::StatusOr<std::unique_ptr<Op>> MakePlaneNorm(
    const OpSpec& spec, int64_t groups, int64_t channels_per_parameter);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_PLANE_NORM_OP_H_
