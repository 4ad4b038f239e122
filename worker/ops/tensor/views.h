#ifndef SYNCLINE_WORKER_OPS_TENSOR_VIEWS_H_
#define SYNCLINE_WORKER_OPS_TENSOR_VIEWS_H_

#include "worker/ops/op.h"

namespace syncline::worker {

// Output 0 has the bytes of input 0, of any dtype, under another shape. Other
// inputs (Reshape's) were used when shapes were inferred.
absl::StatusOr<std::unique_ptr<Op>> MakeView(const OpSpec& spec);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_TENSOR_VIEWS_H_
