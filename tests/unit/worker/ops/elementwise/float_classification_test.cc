// Goal: NaN and infinities are found, each kind where it is asked for.
// Method: a few numbers by hand, in float32 and float64.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "tests/testing/op_device.h"
#include "worker/ops/op_table.h"

namespace syncline::worker {
namespace {

using Flags = std::vector<int>;

template <typename T>
Flags Found(const std::string& op_type, DType dtype,
            std::map<std::string, Attribute> attributes = {}) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  const std::vector<T> x = {0, static_cast<T>(std::nan("")), kInfinity,
                            -kInfinity, std::numeric_limits<T>::max()};
  Node node;
  node.op_type = op_type;
  node.attributes = std::move(attributes);
  OpSpec spec = testing::HostSpec();
  spec.node = &node;
  spec.inputs = {{.present = true, .dtype = dtype, .dims = {5}}};
  spec.outputs = {{.present = true, .dtype = DType::kBool, .dims = {5}}};
  const auto op = CreateOp(spec);
  EXPECT_TRUE(op.ok()) << op.status();
  std::vector<uint8_t> y(5, 7);
  const std::vector<const void*> inputs = {x.data()};
  const std::vector<void*> outputs = {y.data()};
  EXPECT_TRUE(
      testing::RunForward(**op, {.inputs = inputs, .outputs = outputs}).ok());
  return Flags(y.begin(), y.end());
}

TEST(IsNanTest, NanIsFound) {
  EXPECT_EQ(Found<float>("IsNaN", DType::kFloat32), (Flags{0, 1, 0, 0, 0}));
  EXPECT_EQ(Found<double>("IsNaN", DType::kFloat64), (Flags{0, 1, 0, 0, 0}));
}

TEST(IsNanTest, InfinitiesAreFoundBySign) {
  EXPECT_EQ(Found<float>("IsInf", DType::kFloat32), (Flags{0, 0, 1, 1, 0}));
  EXPECT_EQ(Found<double>("IsInf", DType::kFloat64), (Flags{0, 0, 1, 1, 0}));
  EXPECT_EQ(
      Found<float>("IsInf", DType::kFloat32, {{"detect_negative", int64_t{0}}}),
      (Flags{0, 0, 1, 0, 0}));
  EXPECT_EQ(
      Found<float>("IsInf", DType::kFloat32, {{"detect_positive", int64_t{0}}}),
      (Flags{0, 0, 0, 1, 0}));
}

}  // namespace
}  // namespace syncline::worker
