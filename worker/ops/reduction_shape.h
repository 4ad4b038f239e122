#ifndef SYNCLINE_WORKER_OPS_REDUCTION_SHAPE_H_
#define SYNCLINE_WORKER_OPS_REDUCTION_SHAPE_H_

#include "absl/status/statusor.h"
#include "kernels/elementwise/broadcast.h"
#include "worker/ops/op.h"

namespace syncline::worker {

// The dimensions of input 0, with 1 for those that are reduced. The axes are an
// attribute or a constant input; none means all of them, or with
// noop_with_empty_axes nothing. Errors: InvalidArgument: as AxesOf (axes.h).
absl::StatusOr<Dims> ReducedDims(const OpSpec& spec);

// A reduction of float32 is a broadcast read backwards: `a` of the shape is the
// input, `b` the result, with its reduced dimensions kept as 1. Errors:
// InvalidArgument: not float32, an output of another size.
absl::StatusOr<Broadcast> ReductionShape(const OpSpec& spec);

// The same for input of any type.
absl::StatusOr<Broadcast> ReductionShapeOfAny(const OpSpec& spec);

// The same to given dimensions, as ReducedDims has them. float32.
absl::StatusOr<Broadcast> ReductionShapeTo(const OpSpec& spec,
                                           const Dims& reduced);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_REDUCTION_SHAPE_H_
