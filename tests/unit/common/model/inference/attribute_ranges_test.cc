// Goal: no attribute of a stranger's model ends the process that infers shapes.
// Method: models whose attributes libonnx would divide by, or overflow with.

#include "common/model/inference/attribute_ranges.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/model/model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

// The problems of a model with this node over images and a weight.
std::string ProblemsOf(const std::string& node) {
  const std::string text = absl::StrCat(
      "<ir_version: 8, opset_import: [\"\" : 13]>\n"
      "m (float[N,1,28,28] x, float[1,1,3,3] w) => (float[N,d] y) {\n a = ",
      node, "\n y = Flatten<axis = 1>(a)\n}");
  return std::string(Model::Parse(text, "m").status().message());
}

TEST(AttributeRangesTest, WhatIsDividedByIsNotZero) {
  EXPECT_THAT(ProblemsOf("Conv<strides = [0, 0]>(x, w)"),
              HasSubstr("attribute strides has 0, must be 1 to 2147483647"));
  EXPECT_THAT(ProblemsOf("MaxPool<kernel_shape = [2, 2], strides = [1, 0]>(x)"),
              HasSubstr("attribute strides has 0"));
  EXPECT_THAT(ProblemsOf("AveragePool<kernel_shape = [0, -3]>(x)"),
              HasSubstr("attribute kernel_shape has 0"));
  EXPECT_THAT(ProblemsOf("Conv<dilations = [0, -1]>(x, w)"),
              HasSubstr("attribute dilations has 0"));
  EXPECT_THAT(ProblemsOf("Conv<group = 0>(x, w)"),
              HasSubstr("attribute group has 0, must be 1 to"));
  EXPECT_THAT(ProblemsOf("Conv<pads = [9223372036854775807, 0, 0, 0]>(x, w)"),
              HasSubstr("attribute pads has 9223372036854775807"));
}

TEST(AttributeRangesTest, AnAxisIsOneOfATensor) {
  EXPECT_THAT(ProblemsOf("Flatten<axis = -9223372036854775808>(x)"),
              HasSubstr("attribute axis has -9223372036854775808, must be "
                        "-1024 to 1024"));
}

TEST(AttributeRangesTest, OrdinaryOnesPass) {
  EXPECT_EQ(ProblemsOf("Conv<strides = [2, 1], dilations = [1, 2], group = 1, "
                       "pads = [1, 0, 2, 1]>(x, w)"),
            "");
}

}  // namespace
}  // namespace syncline
