#ifndef SYNCLINE_WORKER_OPS_TENSOR_STRIDED_COPY_H_
#define SYNCLINE_WORKER_OPS_TENSOR_STRIDED_COPY_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/elementwise/strided.h"
#include "worker/ops/op.h"

namespace syncline::worker {

// Output 0, row by row, is input 0 in strides: its elements are moved, repeated
// or left out; with `each_once` neither, which saves its gradient a pass.
// Slice, Tile and Transpose are this. Any dtype. Errors: InvalidArgument: the
// device has no kernel for it.
absl::StatusOr<std::unique_ptr<Op>> MakeStridedCopy(const OpSpec& spec,
                                                    const Strided<1>& walk,
                                                    bool each_once = false);
// The same where input 0 is broadcast to output 0; the error of its gradient
// does not grow with the number of repetitions. Errors: also InvalidArgument:
// the shapes do not fit.
absl::StatusOr<std::unique_ptr<Op>> MakeRepeatedCopy(const OpSpec& spec);

// The values of an input that must be known when the Op is made: int64, or
// int32. Errors: InvalidArgument, calling it `what`.
absl::StatusOr<std::vector<int64_t>> ConstantInts(const TensorType& input,
                                                  absl::string_view what);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_TENSOR_STRIDED_COPY_H_
