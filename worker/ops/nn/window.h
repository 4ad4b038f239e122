#ifndef SYNCLINE_WORKER_OPS_NN_WINDOW_H_
#define SYNCLINE_WORKER_OPS_NN_WINDOW_H_

#include "absl/status/statusor.h"
#include "kernels/window.h"
#include "worker/ops/op.h"

namespace syncline::worker {

// The window of a convolution or pooling node over `in`, the dimensions of its
// input [batch, channels, spatial...], giving `out`, those of its output: from
// strides, dilations, pads, auto_pad and ceil_mode. `kernel` is the window's
// size along each spatial axis.
// Errors: InvalidArgument: other than 1 to 3 spatial axes, an attribute of the
// wrong length or out of range, an output of another size, a plane of more than
// 2^31 - 1 elements or an axis whose padding and window reach as far.
absl::StatusOr<Window> WindowOf(const Node& node, const Dims& in,
                                const Dims& out,
                                absl::Span<const int64_t> kernel);

// The window of a transposed convolution: that of the convolution which leads
// from its output `out` back to its input `in`. With output_padding and
// output_shape. Errors: as WindowOf's.
absl::StatusOr<Window> TransposedWindowOf(const Node& node, const Dims& in,
                                          const Dims& out,
                                          absl::Span<const int64_t> kernel);

// Channels that lie in blocks (TensorType::channel_block) are one more axis of
// a pool's planes, over which its window does not reach. How many planes there
// are then of input 0; and that axis, as the innermost one.
int64_t PlanesOf(const OpSpec& spec);
void AddChannelAxis(const OpSpec& spec, Window* window);

// The attribute kernel_shape, which pooling must have. Errors: InvalidArgument:
// it is missing.
absl::StatusOr<Dims> KernelShapeOf(const Node& node);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_NN_WINDOW_H_
