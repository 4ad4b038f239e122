#ifndef SYNCLINE_WORKER_OPS_ELEMENTWISE_BINARY_OP_H_
#define SYNCLINE_WORKER_OPS_ELEMENTWISE_BINARY_OP_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/elementwise/binary_functions.h"
#include "worker/ops/op.h"

namespace syncline::worker {

// Two float32 inputs, broadcast, one output: a function of two elements.
absl::StatusOr<std::unique_ptr<Op>> MakeBinary(const OpSpec& spec,
                                               BinaryFunction function);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_ELEMENTWISE_BINARY_OP_H_
