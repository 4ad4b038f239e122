// Goal: what a Pad says of itself is checked before memory is taken for it.
// Method: nodes that contradict themselves, and one whose result is empty
// however wide; what it computes is in op_table_test.

#include "gtest/gtest.h"
#include "tests/testing/op_device.h"
#include "worker/ops/op_table.h"

namespace syncline::worker {
namespace {

using Ints = std::vector<int64_t>;

TensorType Constant(const Ints& values) {
  return {.present = true,
          .dtype = DType::kInt64,
          .dims = {static_cast<int64_t>(values.size())},
          .constant = values.data()};
}

// Of [2,3], unless `x` says otherwise; `value` and `axes` may be absent.
absl::Status StatusOf(const Ints& pads, const Dims& out,
                      const TensorType& value = {}, const Ints* axes = nullptr,
                      const Dims& x = {2, 3}) {
  Node node;
  node.name = "it";
  node.op_type = "Pad";
  node.since_version = 18;
  OpSpec spec = testing::HostSpec();
  spec.node = &node;
  spec.inputs = {{.present = true, .dims = x},
                 Constant(pads),
                 value,
                 axes == nullptr ? TensorType() : Constant(*axes)};
  spec.outputs = {{.present = true, .dims = out}};
  return CreateOp(spec).status();
}

constexpr int64_t kHuge = int64_t{1} << 40;

TEST(PadTest, AnAxisIsNamedOnce) {
  const Ints axes = {1, -1};
  EXPECT_EQ(
      StatusOf({-kHuge, kHuge, kHuge, -kHuge}, {2, 3}, {}, &axes).message(),
      "node \"it\" (Pad): axes name dimension 1 twice");
}

TEST(PadTest, PadsMustLeadToTheOutput) {
  EXPECT_TRUE(StatusOf({1, 0, 0, -2}, {3, 1}).ok());
  EXPECT_EQ(StatusOf({0, kHuge, 0, 0}, {2, 3}).message(),
            "node \"it\" (Pad): pads 1099511627776 and 0 make 1099511627779 of "
            "3 elements, but its output has 3");
  EXPECT_EQ(StatusOf({0, INT64_MIN, 0, 0}, {2, 3}).message(),
            "node \"it\" (Pad): a pad of -9223372036854775808 is too large");
  EXPECT_EQ(StatusOf({0, -2, 0, -2}, {2, 1}).message(),
            "node \"it\" (Pad): pads -2 and -2 take more than the 3 elements "
            "of a dimension");
}

TEST(PadTest, TheConstantIsOneElementOfTheDatasType) {
  const Ints pads = {0, 0, 0, 0};
  EXPECT_TRUE(StatusOf(pads, {2, 3}, {.present = true, .dims = {}}).ok());
  EXPECT_EQ(StatusOf(pads, {2, 3}, {.present = true, .dims = {0}}).message(),
            "node \"it\" (Pad): constant_value is float32[0]; it must be one "
            "float32, as the data are");
  EXPECT_EQ(StatusOf(pads, {2, 3},
                     {.present = true, .dtype = DType::kInt64, .dims = {}})
                .message(),
            "node \"it\" (Pad): constant_value is int64[]; it must be one "
            "float32, as the data are");
}

TEST(PadTest, AnEmptyResultTakesNoMemoryHoweverWide) {
  EXPECT_TRUE(
      StatusOf({0, 0, 0, kHuge}, {0, kHuge + 3}, {}, nullptr, {0, 3}).ok());
}

}  // namespace
}  // namespace syncline::worker
