#ifndef SYNCLINE_WORKER_OPS_SOFTMAX_OP_H_
#define SYNCLINE_WORKER_OPS_SOFTMAX_OP_H_

#include "kernels/softmax.h"
#include "worker/ops/op.h"

namespace syncline::worker {

struct SoftmaxKernels {
  void (*forward)(const SoftmaxShape& s, const float* x, float* y);
  void (*backward)(const SoftmaxShape& s, const float* y, const float* dy,
                   bool accumulate, float* dx);
};

// Softmax and LogSoftmax. From opset 13 on along `axis` (default -1); before,
// over all dimensions from `axis` (default 1) on, seen as one.
absl::StatusOr<std::unique_ptr<Op>> MakeSoftmaxOp(
    const OpSpec& spec, const SoftmaxKernels& kernels);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_SOFTMAX_OP_H_
