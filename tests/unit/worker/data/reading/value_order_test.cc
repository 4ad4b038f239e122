// Goal: values reach a graph input in the order that it means, or not at all.
// Method: tables of shapes; orders against NumPy's transpose by hand.

#include "worker/data/reading/value_order.h"

#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::StatusOr<std::vector<int32_t>> Order(
    const std::string& layout, const std::optional<SampleDims>& field,
    const SampleDims& input) {
  Feed feed;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "input: 'x' field: 'image' " + layout, &feed));
  return FindValueOrder(feed, field, input);
}

std::string Problem(const std::string& layout,
                    const std::optional<SampleDims>& field,
                    const SampleDims& input) {
  const auto order = Order(layout, field, input);
  return order.ok() ? "none" : std::string(order.status().message());
}

TEST(ValueOrderTest, EqualShapesAndFlatInputsNeedNoWord) {
  const struct {
    SampleDims field;
    SampleDims input;
  } kCases[] = {{{28, 28}, {28, 28}},
                {{28, 28}, {1, 28, 28}},
                {{28, 28, 1}, {1, 28, 28}},
                {{28, 28}, {784}},
                {{32, 32, 3}, {3072}},
                {{784}, {784, 1}},
                {{}, {1}},
                {{5, 1}, {1, 5}}};
  for (const auto& c : kCases) {
    const auto order = Order("", c.field, c.input);
    ASSERT_TRUE(order.ok()) << order.status();
    EXPECT_THAT(*order, IsEmpty());
  }
}

TEST(ValueOrderTest, ASourceWithoutShapesFitsByCount) {
  EXPECT_THAT(*Order("", std::nullopt, {3, 2}), IsEmpty());
  EXPECT_THAT(*Order("reshape: [3, 2]", std::nullopt, {3, 2}), IsEmpty());
  EXPECT_THAT(*Order("reshape: [2, 3] transpose: [1, 0]", std::nullopt, {3, 2}),
              ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(Problem("transpose: [1, 0]", std::nullopt, {3, 2}),
              HasSubstr("transpose needs reshape"));
}

TEST(ValueOrderTest, AnImageWithItsChannelsLastIsRefusedWithTheTranspose) {
  EXPECT_THAT(Problem("", SampleDims{32, 32, 3}, {3, 32, 32}),
              AllOf(HasSubstr("field \"image\", graph input \"x\", which takes "
                              "[3, 32, 32] a sample: the field's values are "
                              "[32, 32, 3]"),
                    HasSubstr("transpose: [2, 0, 1] in its feed")));
  EXPECT_THAT(Problem("reshape: [4, 6, 3]", SampleDims{72}, {3, 4, 6}),
              HasSubstr("transpose: [2, 0, 1]"));
  EXPECT_THAT(Problem("", SampleDims{6, 4, 1}, {1, 4, 6}),
              HasSubstr("transpose: [1, 0, 2]"));
  EXPECT_THAT(Problem("", SampleDims{6, 4}, {8, 3}),
              HasSubstr("with reshape and transpose"));
}

TEST(ValueOrderTest, AFlatFieldMustSayHowItLies) {
  EXPECT_THAT(Problem("", SampleDims{3072}, {3, 32, 32}),
              HasSubstr("reshape: [3, 32, 32]"));
  EXPECT_THAT(*Order("reshape: [3, 32, 32]", SampleDims{3072}, {3, 32, 32}),
              IsEmpty());
}

TEST(ValueOrderTest, TransposeIsNumPys) {
  // numpy.arange(12).reshape(2, 3, 2).transpose(2, 0, 1).ravel()
  EXPECT_THAT(*Order("transpose: [2, 0, 1]", SampleDims{2, 3, 2}, {2, 2, 3}),
              ElementsAre(0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11));
  EXPECT_THAT(*Order("reshape: [2, 3, 2] transpose: [1, 2, 0]", SampleDims{12},
                     {3, 2, 2}),
              ElementsAre(0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11));
  // To a flat input, too; and one that moves nothing costs nothing.
  EXPECT_THAT(*Order("transpose: [1, 0]", SampleDims{2, 3}, {6}),
              ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(*Order("transpose: [2, 0, 1]", SampleDims{4, 4, 1}, {1, 4, 4}),
              IsEmpty());
}

TEST(ValueOrderTest, WhatCannotBeIsNamed) {
  EXPECT_THAT(Problem("reshape: [2, 2]", SampleDims{6}, {6}),
              HasSubstr("reshape: [2, 2] has 4 values, not 6"));
  for (const char* order : {"[0]", "[0, 0]", "[0, 2]", "[0, 1, 2]"}) {
    EXPECT_THAT(
        Problem("transpose: " + std::string(order), SampleDims{2, 3}, {3, 2}),
        HasSubstr("is no order of the dimensions of [2, 3]"));
  }
  EXPECT_THAT(Problem("transpose: [0, 1]", SampleDims{2, 3}, {3, 2}),
              HasSubstr("[2, 3], transposed [2, 3]; transpose: [1, 0] "));
}

TEST(ValueOrderTest, RowsAreReordered) {
  std::vector<int64_t> values(12);
  std::iota(values.begin(), values.end(), 0);
  ReorderRows<int64_t>({}, &values);
  EXPECT_EQ(values[5], 5);
  ReorderRows<int64_t>({0, 3, 1, 4, 2, 5}, &values);
  EXPECT_THAT(values, ElementsAre(0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11));
}

}  // namespace
}  // namespace syncline::worker
