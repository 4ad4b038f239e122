// Goal: arithmetic on integers that are fed is exact, broadcasts, wraps around
// where a type ends, and says which element has no result. Method: numbers by
// hand, at the ends of each type.

#include "worker/ops/elementwise/integers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/op_device.h"
#include "worker/ops/op_table.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
constexpr T kMost = std::numeric_limits<T>::max();
template <typename T>
constexpr T kLeast = std::numeric_limits<T>::min();

template <typename T>
DType TypeOf() {
  if (sizeof(T) == 1) return DType::kUint8;
  return sizeof(T) == 4 ? DType::kInt32 : DType::kInt64;
}

template <typename T>
struct Array {
  Dims dims;
  std::vector<T> values;
};

template <typename T>
Array<T> Line(std::vector<T> values) {
  return {{static_cast<int64_t>(values.size())}, std::move(values)};
}

template <typename T>
absl::StatusOr<std::vector<T>> Run(
    const std::string& op_type, const std::vector<Array<T>>& in, Dims out,
    std::map<std::string, Attribute> attributes = {}) {
  Node node;
  node.name = "it";
  node.op_type = op_type;
  node.since_version = 13;
  node.attributes = std::move(attributes);
  OpSpec spec = testing::HostSpec();
  spec.node = &node;
  std::vector<const void*> inputs;
  for (const Array<T>& x : in) {
    spec.inputs.push_back(
        {.present = true, .dtype = TypeOf<T>(), .dims = x.dims});
    inputs.push_back(x.values.data());
  }
  spec.outputs = {{.present = true, .dtype = TypeOf<T>(), .dims = out}};
  auto op = CreateOp(spec);
  if (!op.ok()) return op.status();
  std::vector<T> y(ElementCount(out), 77);
  const std::vector<void*> outputs = {y.data()};
  const absl::Status status =
      testing::RunForward(**op, {.inputs = inputs, .outputs = outputs});
  if (!status.ok()) return status;
  return y;
}

template <typename T>
std::vector<T> Of(const std::string& op_type, std::vector<T> a,
                  std::vector<T> b,
                  std::map<std::string, Attribute> attributes = {}) {
  const Dims out = {static_cast<int64_t>(a.size())};
  const auto y =
      Run<T>(op_type, {Line(a), Line(b)}, out, std::move(attributes));
  EXPECT_TRUE(y.ok()) << y.status();
  return y.ok() ? *y : std::vector<T>();
}

template <typename T>
class IntegersTest : public ::testing::Test {};
using Signed = ::testing::Types<int32_t, int64_t>;
TYPED_TEST_SUITE(IntegersTest, Signed);

TYPED_TEST(IntegersTest, ResultsAreExactAndWrapAround) {
  using T = TypeParam;
  constexpr T kTop = kMost<T>;
  constexpr T kBottom = kLeast<T>;
  EXPECT_THAT(Of<T>("Add", {2, kTop}, {3, 1}), ElementsAre(5, kBottom));
  EXPECT_THAT(Of<T>("Sub", {2, kBottom}, {3, 1}), ElementsAre(-1, kTop));
  EXPECT_THAT(Of<T>("Mul", {-4, kTop}, {3, 2}), ElementsAre(-12, -2));
  EXPECT_THAT(Of<T>("Div", {-7, 7, kBottom}, {2, -2, -1}),
              ElementsAre(-3, -3, kBottom));
  EXPECT_THAT(Of<T>("Pow", {3, -2, 0}, {4, 3, 0}), ElementsAre(81, -8, 1));
  EXPECT_THAT(Of<T>("Max", {kTop - 1, -5}, {kTop, -6}), ElementsAre(kTop, -5));
  EXPECT_THAT(Of<T>("Min", {kTop - 1, -5}, {kTop, -6}),
              ElementsAre(kTop - 1, -6));
}

TYPED_TEST(IntegersTest, ARemainderHasTheSignOfOneOrTheOther) {
  using T = TypeParam;
  const std::vector<T> a = {7, -7, 7, -7, 6, kLeast<T>};
  const std::vector<T> b = {3, 3, -3, -3, -3, -1};
  EXPECT_THAT(Of<T>("Mod", a, b), ElementsAre(1, 2, -2, -1, 0, 0));
  EXPECT_THAT(Of<T>("Mod", a, b, {{"fmod", int64_t{1}}}),
              ElementsAre(1, -1, 1, -1, 0, 0));
}

TYPED_TEST(IntegersTest, OperandsAreRepeated) {
  using T = TypeParam;
  const Array<T> row = {{2}, {10, 20}};
  const Array<T> column = {{3, 1}, {1, 2, 3}};
  auto y = Run<T>("Sub", {row, column}, {3, 2});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_THAT(*y, ElementsAre(9, 19, 8, 18, 7, 17));
  y = Run<T>("Max", {row, column, {{}, {15}}}, {3, 2});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_THAT(*y, ElementsAre(15, 20, 15, 20, 15, 20));
}

TYPED_TEST(IntegersTest, OfOneInput) {
  using T = TypeParam;
  const std::vector<Array<T>> x = {Line<T>({-3, 0, 5, kLeast<T>})};
  EXPECT_THAT(*Run<T>("Neg", x, {4}), ElementsAre(3, 0, -5, kLeast<T>));
  EXPECT_THAT(*Run<T>("Abs", x, {4}), ElementsAre(3, 0, 5, kLeast<T>));
  EXPECT_THAT(*Run<T>("Sign", x, {4}), ElementsAre(-1, 0, 1, -1));
}

TYPED_TEST(IntegersTest, Reductions) {
  using T = TypeParam;
  const std::map<std::string, Attribute> rows = {
      {"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{0}}};
  const std::vector<Array<T>> x = {{{2, 3}, {4, -1, 2, -3, -5, kLeast<T>}}};
  EXPECT_EQ(Run<T>("ReduceMax", x, {2}, rows).value(), (std::vector<T>{4, -3}));
  EXPECT_EQ(Run<T>("ReduceMin", x, {2}, rows).value(),
            (std::vector<T>{-1, kLeast<T>}));
  EXPECT_EQ(Run<T>("ReduceProd", x, {2}, rows).value(),
            (std::vector<T>{-8, kLeast<T>}));
  EXPECT_EQ(Run<T>("ReduceMax", {{{0, 1}, {}}}, {}).value(),
            (std::vector<T>{kLeast<T>}));
}

TYPED_TEST(IntegersTest, SumsWrapAround) {
  using T = TypeParam;
  const std::vector<Array<T>> x = {{{2, 2}, {3, 4, kMost<T>, 2}}};
  auto y = Run<T>("ReduceSum", x, {1, 1});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_THAT(*y, ElementsAre(kLeast<T> + 8));
}

TYPED_TEST(IntegersTest, BoundsMayBeMissing) {
  using T = TypeParam;
  const Array<T> x = Line<T>({kLeast<T>, -2, 0, 9, kMost<T>});
  EXPECT_THAT(*Run<T>("Clip", {x, {{}, {-1}}, {{}, {5}}}, {5}),
              ElementsAre(-1, -1, 0, 5, 5));
  EXPECT_THAT(*Run<T>("Clip", {x, {{}, {-1}}}, {5}),
              ElementsAre(-1, -1, 0, 9, kMost<T>));
  EXPECT_EQ(*Run<T>("Clip", {x}, {5}), x.values);
}

TYPED_TEST(IntegersTest, WhatHasNoResultEndsTheStep) {
  using T = TypeParam;
  for (const char* op : {"Div", "Mod"}) {
    const auto y = Run<T>(op, {Line<T>({1, 2, 3}), Line<T>({1, 0, 0})}, {3});
    EXPECT_EQ(y.status().message(), "element 1: an integer is divided by 0");
  }
  EXPECT_THAT(
      Run<T>("Pow", {Line<T>({2}), Line<T>({-1})}, {1}).status().message(),
      HasSubstr("element 0: an integer is raised to a negative power"));
}

TEST(BytesTest, BytesWrapAroundToo) {
  EXPECT_THAT(Of<uint8_t>("Add", {250}, {10}), ElementsAre(4));
  EXPECT_THAT(Of<uint8_t>("Sub", {1}, {2}), ElementsAre(255));
  EXPECT_THAT(Of<uint8_t>("Mul", {16}, {17}), ElementsAre(16));
  EXPECT_THAT(Of<uint8_t>("Mod", {200}, {7}), ElementsAre(4));
}

}  // namespace
}  // namespace syncline::worker
