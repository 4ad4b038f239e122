// Goal: MaxPool's second output says where each maximum was, in either order of
// a plane. Method: one node by hand; values and gradients are
// worker_op_table_test's.

#include <gtest/gtest.h>

#include "common/base/aligned_buffer.h"
#include "tests/testing/op_device.h"
#include "worker/ops/op_table.h"

namespace syncline::worker {
namespace {

// Two planes of 2 x 3, windows of 2 x 2 with stride 1.
std::vector<int64_t> IndicesOf(int64_t storage_order) {
  Node node;
  node.name = "pool";
  node.op_type = "MaxPool";
  node.since_version = 12;
  node.attributes = {{"kernel_shape", std::vector<int64_t>{2, 2}},
                     {"storage_order", storage_order}};
  OpSpec spec = testing::HostSpec();
  spec.node = &node;
  spec.inputs = {{.present = true, .dims = {1, 2, 2, 3}}};
  spec.outputs = {
      {.present = true, .dims = {1, 2, 1, 2}},
      {.present = true, .dtype = DType::kInt64, .dims = {1, 2, 1, 2}}};
  auto op = CreateOp(spec);
  EXPECT_TRUE(op.ok()) << op.status();
  const std::vector<float> x = {1, 2, 3,  //
                                9, 4, 8,  //
                                1, 7, 2,  //
                                3, 4, 5};
  std::vector<float> y(4);
  std::vector<int64_t> indices(4, -1);
  AlignedFloats workspace((*op)->traits().workspace_bytes / sizeof(float) + 1);
  const std::vector<const void*> inputs = {x.data()};
  const std::vector<void*> outputs = {y.data(), indices.data()};
  EXPECT_TRUE(testing::RunForward(**op, {.inputs = inputs,
                                         .outputs = outputs,
                                         .workspace = workspace.data()})
                  .ok());
  EXPECT_EQ(y, std::vector<float>({9, 8, 7, 7}));
  return indices;
}

TEST(MaxPoolTest, IndicesAreWithinTheWholeInput) {
  EXPECT_EQ(IndicesOf(0), std::vector<int64_t>({3, 5, 7, 7}));
}

TEST(MaxPoolTest, StorageOrderOneCountsColumnsFirst) {
  // (row, column) is at column * 2 + row.
  EXPECT_EQ(IndicesOf(1), std::vector<int64_t>({1, 5, 8, 8}));
}

}  // namespace
}  // namespace syncline::worker
