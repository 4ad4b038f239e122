#ifndef SYNCLINE_WORKER_OPS_MAXPOOL_H_
#define SYNCLINE_WORKER_OPS_MAXPOOL_H_

#include "kernels/window.h"
#include "worker/ops/op.h"

namespace syncline::worker {

// The largest element of each window of each plane of input 0 [batch, channels,
// spatial...]; output 1, if there is one, says where it was. Errors:
// InvalidArgument: not float32, a plane of more than 2^31 - 1 elements.
absl::StatusOr<std::unique_ptr<Op>> MakeMaxPoolOver(const OpSpec& spec,
                                                    Window window);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_MAXPOOL_H_
