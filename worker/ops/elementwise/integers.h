#ifndef SYNCLINE_WORKER_OPS_ELEMENTWISE_INTEGERS_H_
#define SYNCLINE_WORKER_OPS_ELEMENTWISE_INTEGERS_H_

// Arithmetic on integers that depend on what is fed: positions, offsets of
// features, lengths, masks. Exact; a result that its type does not have wraps
// around, as in PyTorch and ONNX Runtime. No gradient.

#include "kernels/elementwise/integer_functions.h"
#include "worker/ops/op.h"

namespace syncline::worker {

// int32, int64, uint8 and bool, which counts as the numbers 0 and 1.
bool IsInteger(DType dtype);

// One result of inputs of one type, element by element, broadcast, from the
// first input to the last. A division by 0 and a negative exponent end the
// step. Errors: InvalidArgument: inputs of other or of several types.
absl::StatusOr<std::unique_ptr<Op>> MakeIntegerArithmetic(
    const OpSpec& spec, IntegerFunction function);

// Of one input.
absl::StatusOr<std::unique_ptr<Op>> MakeIntegerUnary(const OpSpec& spec,
                                                     IntegerUnary function);

// Over the axes (reduction_shape.h): kAdd, kMultiply, kMax or kMin. Of nothing:
// 0, 1, the least and the largest number of the type.
absl::StatusOr<std::unique_ptr<Op>> MakeIntegerReduction(
    const OpSpec& spec, IntegerFunction function);

// Between bounds of the input's type, each of which may be missing.
absl::StatusOr<std::unique_ptr<Op>> MakeIntegerClip(const OpSpec& spec);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_ELEMENTWISE_INTEGERS_H_
