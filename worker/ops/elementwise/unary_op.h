#ifndef SYNCLINE_WORKER_OPS_ELEMENTWISE_UNARY_OP_H_
#define SYNCLINE_WORKER_OPS_ELEMENTWISE_UNARY_OP_H_

#include <cstdint>

#include "worker/ops/op.h"

namespace syncline::worker {

// An activation: one float32 input, one output of its shape.
struct UnaryKernels {
  void (*forward)(int64_t n, const float* x, float* y);
  // `saved` is the input or the output, as below; of kNothing neither is kept,
  // and it is not to be read.
  void (*backward)(int64_t n, const float* saved, const float* dy,
                   bool accumulate, float* dx);
  enum class Saved { kInput, kOutput, kNothing } saved;
};

absl::StatusOr<std::unique_ptr<Op>> MakeUnary(const OpSpec& spec,
                                              const UnaryKernels& kernels);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_ELEMENTWISE_UNARY_OP_H_
