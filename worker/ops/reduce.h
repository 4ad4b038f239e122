#ifndef SYNCLINE_WORKER_OPS_REDUCE_H_
#define SYNCLINE_WORKER_OPS_REDUCE_H_

#include "kernels/elementwise/broadcast.h"
#include "worker/ops/op.h"

namespace syncline::worker {

enum class Reduction { kSum, kMean };

// A reduction of float32 is a broadcast read backwards: `a` of the shape is the
// input, `b` the result, with its reduced dimensions kept as 1. The axes are an
// attribute or a constant input; none means all of them, or with
// noop_with_empty_axes nothing.
absl::StatusOr<Broadcast> ReductionShape(const OpSpec& spec);
// The same for input of any type.
absl::StatusOr<Broadcast> ReductionShapeOfAny(const OpSpec& spec);

// Sum or mean over the axes.
absl::StatusOr<std::unique_ptr<Op>> MakeReduce(const OpSpec& spec,
                                               Reduction reduction);

// The same to given dimensions: those of input 0, with 1 for what is reduced.
absl::StatusOr<std::unique_ptr<Op>> MakeReduceTo(const OpSpec& spec,
                                                 const Dims& reduced,
                                                 Reduction reduction);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_REDUCE_H_
