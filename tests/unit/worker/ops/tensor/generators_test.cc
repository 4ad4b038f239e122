// Goal: operators that make values make those that ONNX says, of each type, and
// refuse settings that name none. Method: a few numbers by hand.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/testing/op_device.h"
#include "worker/ops/op_table.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The operator `node` with these numbers as its inputs, each of shape `dims`,
// and with `count` results. REQUIRES: an output that is not float32 has the
// inputs' type T.
template <typename T>
absl::StatusOr<std::vector<T>> Made(const Node& node, DType dtype,
                                    const std::vector<T>& numbers,
                                    int64_t count, const Dims& dims = {}) {
  OpSpec spec = testing::HostSpec();
  spec.node = &node;
  std::vector<const void*> inputs;
  for (const T& number : numbers) {
    spec.inputs.push_back({.present = true, .dtype = dtype, .dims = dims});
    inputs.push_back(&number);
  }
  spec.outputs = {{.present = true, .dtype = dtype, .dims = {count}}};
  const auto op = CreateOp(spec);
  if (!op.ok()) return op.status();
  std::vector<T> y(static_cast<size_t>(count), T{77});
  const std::vector<void*> outputs = {y.data()};
  const absl::Status run =
      testing::RunForward(**op, {.inputs = inputs, .outputs = outputs});
  if (!run.ok()) return run;
  return y;
}

Node NodeOf(const std::string& op_type) {
  Node node;
  node.name = "it";
  node.op_type = op_type;
  return node;
}

TEST(RangeTest, CountsFromStartByDelta) {
  const Node range = NodeOf("Range");
  EXPECT_THAT(*Made<int64_t>(range, DType::kInt64, {10, 4, -2}, 3),
              ElementsAre(10, 8, 6));
  EXPECT_THAT(*Made<int32_t>(range, DType::kInt32, {-1, 3, 2}, 2),
              ElementsAre(-1, 1));
  EXPECT_THAT(*Made<float>(range, DType::kFloat32, {0.5f, 2, 0.25f}, 6),
              ElementsAre(0.5f, 0.75f, 1.0f, 1.25f, 1.5f, 1.75f));
  EXPECT_THAT(*Made<int64_t>(range, DType::kInt64, {1, 1, 1}, 0),
              ElementsAre());
}

TEST(RangeTest, ListsForNumbersAreRefused) {
  const auto made =
      Made<int64_t>(NodeOf("Range"), DType::kInt64, {0, 2, 1}, 2, {2});
  EXPECT_THAT(std::string(made.status().message()),
              HasSubstr("must be one number"));
}

TEST(RangeTest, FlagsAreNotCounted) {
  const auto made = Made<uint8_t>(NodeOf("Range"), DType::kBool, {0, 1, 1}, 1);
  EXPECT_THAT(std::string(made.status().message()),
              HasSubstr("are not counted"));
}

// The value of ConstantOfShape, one element.
template <typename T>
Node Constant(DType dtype, T value) {
  Node node = NodeOf("ConstantOfShape");
  node.attributes["value"] = ConstantTensor{
      .dtype = dtype,
      .dims = {1},
      .bytes = std::string(reinterpret_cast<const char*>(&value), sizeof(T))};
  return node;
}

TEST(ConstantOfShapeTest, RepeatsItsValue) {
  EXPECT_THAT(
      *Made<float>(Constant(DType::kFloat32, 2.5f), DType::kFloat32, {}, 3),
      ElementsAre(2.5f, 2.5f, 2.5f));
  EXPECT_THAT(*Made<int64_t>(Constant(DType::kInt64, int64_t{-4}),
                             DType::kInt64, {}, 2),
              ElementsAre(-4, -4));
}

TEST(ConstantOfShapeTest, WithoutAValueItIsZero) {
  EXPECT_THAT(*Made<float>(NodeOf("ConstantOfShape"), DType::kFloat32, {}, 2),
              ElementsAre(0, 0));
}

TEST(ConstantOfShapeTest, AnElementOfAnotherSizeIsRefused) {
  const auto made =
      Made<int64_t>(Constant(DType::kFloat32, 1.0f), DType::kInt64, {}, 1);
  EXPECT_THAT(std::string(made.status().message()),
              HasSubstr("must be one element"));
}

}  // namespace
}  // namespace syncline::worker
