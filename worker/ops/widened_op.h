#ifndef SYNCLINE_WORKER_OPS_WIDENED_OP_H_
#define SYNCLINE_WORKER_OPS_WIDENED_OP_H_

// Operators on values of 16 bits: on devices whose kernels take them, and on
// those whose kernels compute in float32.

#include <memory>

#include "absl/status/statusor.h"
#include "worker/ops/op.h"

namespace syncline::worker {

// The node that rounds a float32 value to a 16-bit copy. A plan puts it in
// (worker/compute/dtype_overlay.h); no model has it. It has no gradient: the
// readers of the copy write to the gradient of the value itself.
inline constexpr char kCastTo16Bits[] = "CastTo16Bits";

// CreateOp (op_table.h) for a plan with 16-bit types. If the device computes
// the operator in them (Device::computes_in), the Op's kernels are told the
// types of their arrays. If it does not, or if the operator cannot do so with
// one rounding for each result, the Op is one for float32 between casts: inputs
// and gradients are widened into scratch, results are rounded to nearest even.
// So arrays have the size and the values of their type, and a node computes in
// float32 from one rounding to the next. Errors: CreateOp's; InvalidArgument:
// the device does not cast.
absl::StatusOr<std::unique_ptr<Op>> CreateTypedOp(const OpSpec& spec);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_WIDENED_OP_H_
