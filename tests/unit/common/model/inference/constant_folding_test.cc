// Goal: what is known before training is computed as ONNX says. Method: one
// node at a time over small tensors; what is not known, too large or wrong.

#include "common/model/inference/constant_folding.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ConstantTensor Ints(Dims dims, const std::vector<int64_t>& values) {
  return {DType::kInt64, std::move(dims),
          std::string(reinterpret_cast<const char*>(values.data()),
                      values.size() * sizeof(int64_t))};
}
ConstantTensor List(const std::vector<int64_t>& values) {
  return Ints({static_cast<int64_t>(values.size())}, values);
}
ConstantTensor Floats(Dims dims, const std::vector<float>& values) {
  return {DType::kFloat32, std::move(dims),
          std::string(reinterpret_cast<const char*>(values.data()),
                      values.size() * sizeof(float))};
}
ConstantTensor Bools(Dims dims, const std::string& values) {
  return {DType::kBool, std::move(dims), values};
}

struct Call {
  std::string op;
  std::vector<ConstantTensor> inputs;
  std::map<std::string, Attribute> attributes = {};

  absl::StatusOr<std::optional<ConstantTensor>> Run(DType dtype,
                                                    Dims dims) const {
    Node node;
    node.op_type = op;
    node.attributes = attributes;
    std::vector<FoldInput> known;
    for (const ConstantTensor& input : inputs) {
      known.push_back({true, input.dims, &input});
    }
    return FoldNode(node, known, dtype, dims);
  }
  std::vector<int64_t> AsInts(Dims dims) const {
    const auto result = Run(DType::kInt64, dims);
    EXPECT_TRUE(result.ok() && result->has_value()) << op;
    if (!result.ok() || !result->has_value()) return {};
    return {(*result)->ints().begin(), (*result)->ints().end()};
  }
  std::vector<float> AsFloats(Dims dims) const {
    const auto result = Run(DType::kFloat32, dims);
    EXPECT_TRUE(result.ok() && result->has_value()) << op;
    if (!result.ok() || !result->has_value()) return {};
    return {(*result)->floats().begin(), (*result)->floats().end()};
  }
  std::vector<int> AsBools(Dims dims) const {
    const auto result = Run(DType::kBool, dims);
    EXPECT_TRUE(result.ok() && result->has_value()) << op;
    if (!result.ok() || !result->has_value()) return {};
    return {(*result)->bytes.begin(), (*result)->bytes.end()};
  }
};

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

TEST(ConstantFoldingTest, ShapesNeedNoValues) {
  Node node;
  node.op_type = "Shape";
  const std::vector<FoldInput> data = {{true, {7, 3, 5}, nullptr}};
  auto shape = FoldNode(node, data, DType::kInt64, {3});
  ASSERT_TRUE(shape.ok() && shape->has_value());
  EXPECT_THAT((*shape)->ints(), ElementsAre(7, 3, 5));
  node.attributes = {{"start", int64_t{-2}}, {"end", int64_t{2}}};
  shape = FoldNode(node, data, DType::kInt64, {1});
  EXPECT_THAT((*shape)->ints(), ElementsAre(3));
  node.op_type = "Size";
  shape = FoldNode(node, data, DType::kInt64, {});
  EXPECT_THAT((*shape)->ints(), ElementsAre(105));
}

TEST(ConstantFoldingTest, WhatExportersMakeShapesOf) {
  const ConstantTensor shape = List({7, 3, 5});
  EXPECT_THAT((Call{"Gather", {shape, Ints({}, {-1})}}.AsInts({})),
              ElementsAre(5));
  EXPECT_THAT((Call{"Gather",
                    {Ints({2, 2}, {1, 2, 3, 4}), List({1, 0})},
                    {{"axis", int64_t{1}}}}
                   .AsInts({2, 2})),
              ElementsAre(2, 1, 4, 3));
  EXPECT_THAT((Call{"Unsqueeze", {Ints({}, {4}), List({0})}}.AsInts({1})),
              ElementsAre(4));
  EXPECT_THAT(
      (Call{"Concat", {List({1}), List({2, 3})}, {{"axis", int64_t{0}}}}.AsInts(
          {3})),
      ElementsAre(1, 2, 3));
  EXPECT_THAT(
      (Call{"Slice", {shape, List({1}), List({kMost}), List({0}), List({1})}}
           .AsInts({2})),
      ElementsAre(3, 5));
  EXPECT_THAT(
      (Call{"Slice", {shape, List({-1}), List({-kMost}), List({0}), List({-2})}}
           .AsInts({2})),
      ElementsAre(5, 7));
  EXPECT_THAT((Call{"Div", {Ints({}, {-7}), List({2, -2})}}.AsInts({2})),
              ElementsAre(-3, 3));
  EXPECT_THAT((Call{"Mul", {Ints({}, {kMost}), Ints({}, {2})}}.AsInts({})),
              ElementsAre(-2));
  EXPECT_THAT((Call{"Max", {List({7, 3}), Ints({}, {5})}}.AsInts({2})),
              ElementsAre(7, 5));
  EXPECT_THAT((Call{"Min", {List({7, 3}), Ints({}, {5})}}.AsInts({2})),
              ElementsAre(5, 3));
  EXPECT_THAT(
      (Call{"Min", {List({7, 3}), Ints({}, {5}), Ints({}, {4})}}.AsInts({2})),
      ElementsAre(4, 3));
  EXPECT_THAT((Call{"Mod", {List({-7, 7}), List({3, -3})}}.AsInts({2})),
              ElementsAre(2, -2));
  EXPECT_THAT(
      (Call{"Mod", {List({-7, 7}), List({3, -3})}, {{"fmod", int64_t{1}}}}
           .AsInts({2})),
      ElementsAre(-1, 1));
  EXPECT_THAT((Call{"Abs", {List({-7, 0, 3})}}.AsInts({3})),
              ElementsAre(7, 0, 3));
  EXPECT_THAT((Call{"Sign", {List({-7, 0, 3})}}.AsInts({3})),
              ElementsAre(-1, 0, 1));
  EXPECT_THAT(
      (Call{"Clip", {List({-7, 0, 3}), Ints({}, {-1}), Ints({}, {2})}}.AsInts(
          {3})),
      ElementsAre(-1, 0, 2));
  EXPECT_THAT(
      (Call{"CumSum", {Ints({2, 2}, {1, 2, 3, 4}), Ints({}, {1})}}.AsInts(
          {2, 2})),
      ElementsAre(1, 3, 3, 7));
  EXPECT_THAT((Call{"CumSum",
                    {List({1, 2, 3}), Ints({}, {-1})},
                    {{"exclusive", int64_t{1}}, {"reverse", int64_t{1}}}}
                   .AsInts({3})),
              ElementsAre(5, 3, 0));
  EXPECT_THAT((Call{"ReduceProd", {List({7, 3, 5})}}.AsInts({1})),
              ElementsAre(105));
  EXPECT_THAT((Call{"ReduceMax",
                    {Ints({2, 2}, {1, 2, 4, 3}), List({-1})},
                    {{"keepdims", int64_t{0}}}}
                   .AsInts({2})),
              ElementsAre(2, 4));
  EXPECT_THAT((Call{"ReduceMin",
                    {Ints({2, 2}, {1, 2, 4, 3})},
                    {{"axes", std::vector<int64_t>{0}}}}
                   .AsInts({1, 2})),
              ElementsAre(1, 2));
  EXPECT_THAT((Call{"ReduceSum", {Ints({2, 2}, {1, 2, 4, 3})}}.AsInts({1, 1})),
              ElementsAre(10));
  EXPECT_THAT((Call{"ReduceProd", {Ints({0}, {})}}.AsInts({1})),
              ElementsAre(1));
  EXPECT_THAT((Call{"IsNaN", {Floats({2}, {std::nanf(""), 1})}}.AsBools({2})),
              ElementsAre(1, 0));
  EXPECT_THAT((Call{"IsInf",
                    {Floats({2}, {INFINITY, -INFINITY})},
                    {{"detect_negative", int64_t{0}}}}
                   .AsBools({2})),
              ElementsAre(1, 0));
  EXPECT_THAT(
      (Call{"Xor", {Bools({2}, {"\1\1", 2}), Bools({2}, {"\0\1", 2})}}.AsBools(
          {2})),
      ElementsAre(1, 0));
  EXPECT_THAT((Call{"Floor", {Floats({2}, {2.5f, -2.5f})}}.AsFloats({2})),
              ElementsAre(2, -3));
  EXPECT_THAT((Call{"Ceil", {Floats({2}, {2.5f, -2.5f})}}.AsFloats({2})),
              ElementsAre(3, -2));
  EXPECT_THAT(
      (Call{"Range", {Ints({}, {3}), Ints({}, {9}), Ints({}, {2})}}.AsInts(
          {3})),
      ElementsAre(3, 5, 7));
  EXPECT_THAT(
      (Call{"Transpose", {Ints({2, 3}, {1, 2, 3, 4, 5, 6})}}.AsInts({3, 2})),
      ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_THAT(
      (Call{"Expand", {Ints({2, 1}, {1, 2}), List({2, 2})}}.AsInts({2, 2})),
      ElementsAre(1, 1, 2, 2));
  EXPECT_THAT((Call{"Tile", {List({1, 2}), List({2})}}.AsInts({4})),
              ElementsAre(1, 2, 1, 2));
  EXPECT_THAT(
      (Call{"ConstantOfShape", {List({2})}, {{"value", List({9})}}}.AsInts(
          {2})),
      ElementsAre(9, 9));
  EXPECT_THAT((Call{"Cast", {Floats({2}, {2.9f, -3e30f})}}.AsInts({2})),
              ElementsAre(2, -kMost - 1));
}

TEST(ConstantFoldingTest, WhatExportersMakeMasksOf) {
  EXPECT_THAT(
      (Call{"Trilu", {Floats({2, 2}, {1, 1, 1, 1}), Ints({}, {1})}}.AsFloats(
          {2, 2})),
      ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(
      (Call{"Trilu", {Ints({2, 2}, {1, 1, 1, 1})}, {{"upper", int64_t{0}}}}
           .AsInts({2, 2})),
      ElementsAre(1, 0, 1, 1));
  EXPECT_THAT((Call{"Equal", {List({1, 2}), Ints({}, {2})}}.AsBools({2})),
              ElementsAre(0, 1));
  EXPECT_THAT(
      (Call{"Less", {List({1, 2}), Ints({2, 1}, {2, 1})}}.AsBools({2, 2})),
      ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(
      (Call{"GreaterOrEqual", {Floats({2}, {1, 2}), Floats({}, {2})}}.AsBools(
          {2})),
      ElementsAre(0, 1));
  EXPECT_THAT(
      (Call{"Or", {Bools({2}, {'\0', '\1'}), Bools({}, std::string(1, '\0'))}}
           .AsBools({2})),
      ElementsAre(0, 1));
  EXPECT_THAT((Call{"Not", {Bools({2}, {'\0', '\1'})}}.AsBools({2})),
              ElementsAre(1, 0));
  EXPECT_THAT(
      (Call{"Where",
            {Bools({2}, {'\0', '\1'}), Floats({}, {5}), Floats({2}, {6, 7})}}
           .AsFloats({2})),
      ElementsAre(6, 5));
  EXPECT_THAT((Call{"Sqrt", {Floats({}, {16})}}.AsFloats({})), ElementsAre(4));
  EXPECT_THAT((Call{"Div", {Floats({}, {1}), Floats({}, {4})}}.AsFloats({})),
              ElementsAre(0.25f));
  EXPECT_THAT((Call{"Pow", {Floats({}, {3}), Ints({}, {2})}}.AsFloats({})),
              ElementsAre(9));
  EXPECT_THAT((Call{"Neg", {List({3})}}.AsInts({1})), ElementsAre(-3));
}

TEST(ConstantFoldingTest, PowersOfIntegersAreExactAndWrapAround) {
  const auto power = [](int64_t base, int64_t exponent) {
    const auto powers =
        Call{"Pow", {Ints({}, {base}), Ints({}, {exponent})}}.AsInts({});
    return powers.empty() ? -1 : powers[0];
  };
  // More than the 53 bits that float64 has.
  EXPECT_EQ(power(3, 35), 50031545098999707);
  EXPECT_EQ(power(-3, 35), -50031545098999707);
  EXPECT_EQ(power(2, 64), 0);
  EXPECT_EQ(power(2, 63), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(power(0, 0), 1);
  EXPECT_EQ(power(1, kMost), 1);
  EXPECT_EQ(power(-1, kMost), -1);
  // The exponent may be of another type than the base.
  const std::vector<int32_t> bases = {3};
  const ConstantTensor narrow = {
      DType::kInt32,
      {},
      std::string(reinterpret_cast<const char*>(bases.data()),
                  sizeof(int32_t))};
  const auto wrapped =
      Call{"Pow", {narrow, Ints({}, {35})}}.Run(DType::kInt32, {});
  ASSERT_TRUE(wrapped.ok() && wrapped->has_value());
  int32_t low = 0;
  std::memcpy(&low, (*wrapped)->bytes.data(), sizeof(low));
  EXPECT_EQ(low, static_cast<int32_t>(50031545098999707));
  EXPECT_THAT((Call{"Pow", {Ints({}, {4}), Floats({}, {0.5})}}.AsInts({})),
              ElementsAre(2));
}

TEST(ConstantFoldingTest, WhatIsNotKnownStaysSo) {
  Node node;
  node.op_type = "Add";
  const ConstantTensor one = List({1});
  const auto result = FoldNode(node, {{true, {1}, &one}, {true, {1}, nullptr}},
                               DType::kInt64, {1});
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result->has_value());
  // An operator that no shape is made of, and one that makes too much.
  EXPECT_FALSE(
      (Call{"MatMul", {one, one}}.Run(DType::kInt64, {})->has_value()));
  EXPECT_FALSE((Call{"Expand", {one, List({1 << 21})}}
                    .Run(DType::kInt64, {1 << 21})
                    ->has_value()));
}

TEST(ConstantFoldingTest, AShapeThatCannotBeIsNotRead) {
  // As a file may declare it where none can be inferred.
  EXPECT_FALSE((Call{"Slice", {List({1, 2}), List({0}), List({9})}}
                    .Run(DType::kInt64, {5})
                    ->has_value()));
  EXPECT_FALSE((Call{"Reshape", {List({1, 2}), List({3})}}
                    .Run(DType::kInt64, {3})
                    ->has_value()));
  EXPECT_FALSE((Call{"Expand", {List({1, 2}), List({2})}}
                    .Run(DType::kInt64, {})
                    ->has_value()));
  EXPECT_FALSE((Call{"ConstantOfShape", {List({2})}, {{"value", List({})}}}
                    .Run(DType::kInt64, {2})
                    ->has_value()));
}

TEST(ConstantFoldingTest, WhatIsWrongIsNamed) {
  EXPECT_THAT((Call{"Div", {List({1}), List({0})}}
                   .Run(DType::kInt64, {1})
                   .status()
                   .message()),
              HasSubstr("divided by 0"));
  EXPECT_THAT((Call{"Pow", {List({2}), List({-1})}}
                   .Run(DType::kInt64, {1})
                   .status()
                   .message()),
              HasSubstr("raised to a negative power"));
  EXPECT_THAT((Call{"Gather", {List({1}), List({1})}}
                   .Run(DType::kInt64, {1})
                   .status()
                   .message()),
              HasSubstr("index 1 is outside a dimension of 1"));
  EXPECT_THAT((Call{"Range", {Ints({}, {1}), Ints({}, {2}), Ints({}, {0})}}
                   .Run(DType::kInt64, {1})
                   .status()
                   .message()),
              HasSubstr("a step of 0"));
}

}  // namespace
}  // namespace syncline
