#ifndef SYNCLINE_WORKER_OPS_ELEMENTWISE_POINTWISE_OP_H_
#define SYNCLINE_WORKER_OPS_ELEMENTWISE_POINTWISE_OP_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/elementwise/pointwise_functions.h"
#include "worker/ops/op.h"

namespace syncline::worker {

// One float32 input, one output of its shape: a function of each element.
absl::StatusOr<std::unique_ptr<Op>> MakePointwise(
    const OpSpec& spec, PointwiseFunction function,
    const PointwiseSettings& settings = {});

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_ELEMENTWISE_POINTWISE_OP_H_
