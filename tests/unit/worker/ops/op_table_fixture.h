#ifndef SYNCLINE_TESTS_UNIT_WORKER_OPS_OP_TABLE_FIXTURE_H_
#define SYNCLINE_TESTS_UNIT_WORKER_OPS_OP_TABLE_FIXTURE_H_

// The parts of op_table_test share one operator that is run once, on values of
// any type.

#include <string>
#include <utility>
#include <vector>

#include "tests/testing/op_device.h"
#include "worker/ops/op_table.h"

namespace syncline::worker {

// Runs a node without gradients.
template <typename T>
absl::Status RunOnce(const std::string& op_type, const TensorType& data,
                     const void* values, const TensorType& output,
                     std::vector<T>* y, const TensorType& indices = {},
                     const void* index_values = nullptr) {
  Node node;
  node.name = "it";
  node.op_type = op_type;
  OpSpec spec = testing::HostSpec();
  spec.node = &node;
  spec.inputs = {data, indices};
  spec.outputs = {output};
  auto op = CreateOp(spec);
  if (!op.ok()) return op.status();
  const std::vector<const void*> inputs = {values, index_values};
  const std::vector<void*> outputs = {y->data()};
  return testing::RunForward(**op, {.inputs = inputs, .outputs = outputs});
}

inline TensorType Typed(DType dtype, Dims dims) {
  return {.present = true, .dtype = dtype, .dims = std::move(dims)};
}

}  // namespace syncline::worker

#endif  // SYNCLINE_TESTS_UNIT_WORKER_OPS_OP_TABLE_FIXTURE_H_
