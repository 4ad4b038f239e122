#ifndef SYNCLINE_WORKER_OPS_OP_TABLE_H_
#define SYNCLINE_WORKER_OPS_OP_TABLE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/ops/op.h"

namespace syncline::worker {

struct OpEntry {
  absl::string_view op_type;
  // See common/model/graph/operator_list.h, which this is made from.
  uint32_t differentiable_inputs;
  uint32_t differentiable_outputs;
  OpFactory* make;
};

// Every operator that can be executed, in the order of the list.
absl::Span<const OpEntry> OpTable();
// Null if there is none.
const OpEntry* FindOp(absl::string_view op_type);

// 'node "fc1" (Gemm)', as errors name it.
std::string Describe(const Node& node);

// Makes the Op of spec.node. Errors: InvalidArgument, naming the node: an
// unknown operator, or whatever its factory refuses.
absl::StatusOr<std::unique_ptr<Op>> CreateOp(const OpSpec& spec);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_OP_TABLE_H_
