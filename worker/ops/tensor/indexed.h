#ifndef SYNCLINE_WORKER_OPS_TENSOR_INDEXED_H_
#define SYNCLINE_WORKER_OPS_TENSOR_INDEXED_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/indexed_kernels.h"
#include "worker/ops/op.h"

namespace syncline::worker {

// Single elements: an index is a place along `axis`, and its own place among
// the indices one along the others. Errors: InvalidArgument: shapes that do not
// fit.
absl::StatusOr<IndexedShape> ElementsAlong(const TensorType& data,
                                           const TensorType& indices,
                                           int64_t axis);
// The last dimension of the indices is one place in the data's dimensions after
// the `batch_dims` first ones, which both have. Errors: as above.
absl::StatusOr<IndexedShape> PartsByTuple(const TensorType& data,
                                          const TensorType& indices,
                                          int64_t batch_dims);

// Errors: InvalidArgument: the indices are neither int32 nor int64.
absl::Status CheckIndexType(const TensorType& indices);

// The error for a place that IndexedKernels::find has reported.
absl::Status ExplainIndex(const DataError& error);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_TENSOR_INDEXED_H_
