#ifndef SYNCLINE_WORKER_OPS_FUSED_OP_H_
#define SYNCLINE_WORKER_OPS_FUSED_OP_H_

// Nodes that stand for several of a graph, where a device computes them
// together. A plan puts them in (worker/compute/operator_fusion.h); no model
// has them. Their op_type is for people: "MatMul + Add + Gelu".

#include <memory>

#include "absl/status/statusor.h"
#include "worker/ops/op.h"

namespace syncline::worker {

// The domain of such nodes, and the attribute that says which one it is.
inline constexpr char kFusedDomain[] = "syncline.fused";
inline constexpr char kFusedKind[] = "kind";

// A product of matrices, what is added to each row of it, a function.
//
//   inputs    a, b      as those of a Gemm, whose transA, transB and alpha it
//                       may have; or a [..., k], whose rows are a's, without
//                       transA
//             bias      [n], or omitted
//             kept      what was kept where `a` was computed by a function;
//             then
//                       the gradient of `a` is that of the function's argument
//   outputs   y         likewise: the gradient that comes for y is that of the
//                       argument of its function
//             kept      what the gradient of the function is found from
inline constexpr char kFusedProduct[] = "product";
// Of a product: the function of y; of `a`. Empty: none.
inline constexpr char kFusedFunction[] = "function";
inline constexpr char kFusedInputFunction[] = "input_function";
inline constexpr char kReluFunction[] = "Relu";
inline constexpr char kGeluTanhFunction[] = "Gelu";

// A sum of two arrays of one shape, and its normalisation by row.
//
//   inputs    a, b, scale, bias or none; LayerNormalization's axis and epsilon
//   outputs   a + b, and what is normalised
//
// All inputs are different values. If gradients are wanted, one flows from the
// second output.
inline constexpr char kFusedSumNorm[] = "sum and normalisation";
inline constexpr char kFusedCentred[] = "centred";  // 0: by RMSNormalization

// Makes the Op of spec.node. Errors: Unimplemented: the device, or this code,
// does not compute these shapes and types together; Internal: a library's.
absl::StatusOr<std::unique_ptr<Op>> CreateFusedOp(const OpSpec& spec);

// Of the two kinds.
OpFactory MakeFusedProduct;
OpFactory MakeFusedSumNorm;

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_FUSED_OP_H_
