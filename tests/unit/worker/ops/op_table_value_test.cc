// Goal: operators on integers, flags and shapes, which have no gradient, give
// the values that ONNX says. Method: one run each, with the values written out.

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/op_device.h"
#include "tests/unit/worker/ops/op_table_fixture.h"
#include "worker/ops/op_table.h"

namespace syncline::worker {
namespace {

TEST(OpTableTest, GatherMovesAnyType) {
  const std::vector<int64_t> x = {int64_t{1} << 60, -7, 3};
  const std::vector<int64_t> indices = {2, 0};
  std::vector<int64_t> y(2);
  ASSERT_TRUE(RunOnce("Gather", Typed(DType::kInt64, {3}), x.data(),
                      Typed(DType::kInt64, {2}), &y, Typed(DType::kInt64, {2}),
                      indices.data())
                  .ok());
  EXPECT_EQ(y, std::vector<int64_t>({3, int64_t{1} << 60}));
}

TEST(OpTableTest, CastConvertsAndSaturates) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {1.9f, -1.9f, 3e30f, -kInf, std::nanf("")};
  std::vector<int64_t> whole(5);
  ASSERT_TRUE(RunOnce("Cast", Typed(DType::kFloat32, {5}), x.data(),
                      Typed(DType::kInt64, {5}), &whole)
                  .ok());
  EXPECT_EQ(whole,
            std::vector<int64_t>({1, -1, std::numeric_limits<int64_t>::max(),
                                  std::numeric_limits<int64_t>::min(), 0}));
  const std::vector<int64_t> ids = {-3, 0, 1 << 20};
  std::vector<float> y(3);
  ASSERT_TRUE(RunOnce("Cast", Typed(DType::kInt64, {3}), ids.data(),
                      Typed(DType::kFloat32, {3}), &y)
                  .ok());
  EXPECT_EQ(y, std::vector<float>({-3, 0, 1 << 20}));
  std::vector<uint8_t> flags(3);
  ASSERT_TRUE(RunOnce("Cast", Typed(DType::kInt64, {3}), ids.data(),
                      Typed(DType::kBool, {3}), &flags)
                  .ok());
  EXPECT_EQ(flags, std::vector<uint8_t>({1, 0, 1}));
}

TEST(OpTableTest, ComparisonsBroadcastAndNanIsNothing) {
  const std::vector<float> a = {1, 2, std::nanf("")};
  const std::vector<float> b = {2};
  const auto compare = [&](const std::string& op) {
    std::vector<uint8_t> y(3, 7);
    EXPECT_TRUE(RunOnce(op, Typed(DType::kFloat32, {3}), a.data(),
                        Typed(DType::kBool, {3}), &y,
                        Typed(DType::kFloat32, {1}), b.data())
                    .ok())
        << op;
    return y;
  };
  using Flags = std::vector<uint8_t>;
  EXPECT_EQ(compare("Equal"), (Flags{0, 1, 0}));
  EXPECT_EQ(compare("Less"), (Flags{1, 0, 0}));
  EXPECT_EQ(compare("LessOrEqual"), (Flags{1, 1, 0}));
  EXPECT_EQ(compare("Greater"), (Flags{0, 0, 0}));
  EXPECT_EQ(compare("GreaterOrEqual"), (Flags{0, 1, 0}));
}

TEST(OpTableTest, IntegersAreComparedExactly) {
  const std::vector<int64_t> a = {(int64_t{1} << 60) + 1, -1};
  const std::vector<int64_t> b = {int64_t{1} << 60, -1};
  std::vector<uint8_t> y(2);
  ASSERT_TRUE(RunOnce("Greater", Typed(DType::kInt64, {2}), a.data(),
                      Typed(DType::kBool, {2}), &y, Typed(DType::kInt64, {2}),
                      b.data())
                  .ok());
  EXPECT_EQ(y, (std::vector<uint8_t>{1, 0}));
}

TEST(OpTableTest, FlagsAreCombined) {
  const std::vector<uint8_t> a = {0, 0, 1, 1};
  const std::vector<uint8_t> b = {0, 1, 0, 1};
  const auto combined = [&](const std::string& op) {
    std::vector<uint8_t> y(4, 7);
    EXPECT_TRUE(RunOnce(op, Typed(DType::kBool, {4}), a.data(),
                        Typed(DType::kBool, {4}), &y, Typed(DType::kBool, {4}),
                        b.data())
                    .ok());
    return y;
  };
  EXPECT_EQ(combined("And"), (std::vector<uint8_t>{0, 0, 0, 1}));
  EXPECT_EQ(combined("Or"), (std::vector<uint8_t>{0, 1, 1, 1}));
  EXPECT_EQ(combined("Xor"), (std::vector<uint8_t>{0, 1, 1, 0}));
  EXPECT_EQ(combined("Not"), (std::vector<uint8_t>{1, 1, 0, 0}));
}

TEST(OpTableTest, ShapesAreNumbers) {
  std::vector<int64_t> y(2);
  ASSERT_TRUE(RunOnce("Shape", Typed(DType::kFloat32, {3, 5}), nullptr,
                      Typed(DType::kInt64, {2}), &y)
                  .ok());
  EXPECT_EQ(y, (std::vector<int64_t>{3, 5}));
  ASSERT_TRUE(RunOnce("Size", Typed(DType::kFloat32, {3, 5}), nullptr,
                      Typed(DType::kInt64, {}), &y)
                  .ok());
  EXPECT_EQ(y[0], 15);
}

TEST(OpTableTest, TheFirstOfEqualsIsTheLargest) {
  const std::vector<float> x = {1, 3, 3, 2, 5, -1};
  std::vector<int64_t> y(2);
  ASSERT_TRUE(RunOnce("ArgMax", Typed(DType::kFloat32, {3, 2}), x.data(),
                      Typed(DType::kInt64, {1, 2}), &y)
                  .ok());
  EXPECT_EQ(y, (std::vector<int64_t>{2, 0}));
}

TEST(OpTableTest, OneHotCountsFromTheEndAndForgetsWhatIsOutside) {
  Node node;
  node.op_type = "OneHot";
  const std::vector<float> values = {-1, 4};
  const std::vector<int64_t> indices = {1, -1, 3};
  OpSpec spec = testing::HostSpec();
  spec.node = &node;
  spec.inputs = {Typed(DType::kInt64, {3}), Typed(DType::kInt64, {}),
                 Typed(DType::kFloat32, {2})};
  spec.outputs = {Typed(DType::kFloat32, {3, 3})};
  auto op = CreateOp(spec);
  ASSERT_TRUE(op.ok()) << op.status();
  std::vector<float> y(9);
  const std::vector<const void*> inputs = {indices.data(), nullptr,
                                           values.data()};
  const std::vector<void*> outputs = {y.data()};
  ASSERT_TRUE(
      testing::RunForward(**op, {.inputs = inputs, .outputs = outputs}).ok());
  EXPECT_EQ(y, (std::vector<float>{-1, 4, -1, -1, -1, 4, -1, -1, -1}));
  // Fractions become whole numbers first.
  const std::vector<float> fractions = {1.7f, -0.5f, -1.2f};
  spec.inputs[0] = Typed(DType::kFloat32, {3});
  op = CreateOp(spec);
  ASSERT_TRUE(op.ok()) << op.status();
  const std::vector<const void*> floats = {fractions.data(), nullptr,
                                           values.data()};
  ASSERT_TRUE(
      testing::RunForward(**op, {.inputs = floats, .outputs = outputs}).ok());
  EXPECT_EQ(y, (std::vector<float>{-1, 4, -1, 4, -1, -1, -1, -1, 4}));
}

}  // namespace
}  // namespace syncline::worker
