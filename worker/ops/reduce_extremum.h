#ifndef SYNCLINE_WORKER_OPS_REDUCE_EXTREMUM_H_
#define SYNCLINE_WORKER_OPS_REDUCE_EXTREMUM_H_

#include "worker/ops/op.h"

namespace syncline::worker {

// The largest or smallest over the axes. The first of equals has the whole
// gradient; a NaN wins.
absl::StatusOr<std::unique_ptr<Op>> MakeReduceExtremum(const OpSpec& spec,
                                                       bool largest);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_REDUCE_EXTREMUM_H_
