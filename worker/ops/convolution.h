#ifndef SYNCLINE_WORKER_OPS_CONVOLUTION_H_
#define SYNCLINE_WORKER_OPS_CONVOLUTION_H_

#include "absl/status/statusor.h"
#include "kernels/convolution.h"
#include "worker/ops/op.h"

namespace syncline::worker {

// The shape of the convolution from `in` to `out` with the window and the
// node's groups and weights (input 1 [filters, channels / groups, kernel...]).
// Errors: InvalidArgument: they do not fit.
absl::StatusOr<Convolution::Shape> ConvolutionShapeOf(const OpSpec& spec,
                                                      const Dims& in,
                                                      const Dims& out,
                                                      Window window);

// The window's size: the weights', with which kernel_shape must agree.
absl::StatusOr<Dims> KernelOf(const OpSpec& spec);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_CONVOLUTION_H_
