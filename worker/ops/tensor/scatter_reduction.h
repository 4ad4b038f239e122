#ifndef SYNCLINE_WORKER_OPS_TENSOR_SCATTER_REDUCTION_H_
#define SYNCLINE_WORKER_OPS_TENSOR_SCATTER_REDUCTION_H_

#include "absl/strings/string_view.h"
#include "worker/ops/op.h"
#include "worker/ops/tensor/indexed.h"

namespace syncline::worker {

// A Scatter (scatter.cc) with a reduction: "add", "mul", "max" or "min" of what
// is in a place and all runs that come there, in their order. Of the extremum's
// gradient all that are equal to it have the same share, as PyTorch shares it.
// Errors: InvalidArgument: another one. REQUIRES: inputs of float32, indices
// that RunPlaces accepts.
absl::StatusOr<std::unique_ptr<Op>> MakeScatterReduction(
    const OpSpec& spec, IndexedShape shape, absl::string_view reduction);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_TENSOR_SCATTER_REDUCTION_H_
