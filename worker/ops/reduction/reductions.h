#ifndef SYNCLINE_WORKER_OPS_REDUCTION_REDUCTIONS_H_
#define SYNCLINE_WORKER_OPS_REDUCTION_REDUCTIONS_H_

#include "worker/ops/op.h"

namespace syncline::worker {

enum class Reduction { kSum, kMean };

// Sum or mean of float32 to given dimensions: those of input 0, with 1 for what
// is reduced. Errors: InvalidArgument: as ReductionShapeTo (reduction_shape.h).
absl::StatusOr<std::unique_ptr<Op>> MakeReduceTo(const OpSpec& spec,
                                                 const Dims& reduced,
                                                 Reduction reduction);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_REDUCTION_REDUCTIONS_H_
