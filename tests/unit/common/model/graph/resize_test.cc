// Goal: what Resize's scales and sizes come to, and what is none. Method: a few
// of each by hand.

#include "common/model/graph/resize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> SizesOf(const ResizeGiven& given,
                             const std::vector<int64_t>& dims) {
  const auto axes = ResizedAxes(given, dims);
  EXPECT_TRUE(axes.ok()) << axes.status();
  std::vector<int64_t> sizes = dims;
  for (const ResizedAxis& axis : *axes) sizes[axis.axis] = axis.size;
  return sizes;
}

ResizeGiven ByScales(std::vector<float> scales,
                     std::vector<int64_t> axes = {}) {
  ResizeGiven given;
  given.scales = std::move(scales);
  given.axes = std::move(axes);
  return given;
}

ResizeGiven BySizes(std::vector<int64_t> sizes, std::vector<int64_t> axes = {},
                    const std::string& aspect_ratio = "stretch") {
  ResizeGiven given;
  given.sizes = std::move(sizes);
  given.axes = std::move(axes);
  given.aspect_ratio = aspect_ratio;
  return given;
}

TEST(ResizedAxesTest, AreScaledOrSized) {
  EXPECT_THAT(SizesOf(ByScales({1, 1, 2, 1.5f}), {7, 3, 4, 5}),
              ElementsAre(7, 3, 8, 7));
  EXPECT_THAT(SizesOf(ByScales({0.6f, 2}, {2, -1}), {7, 3, 4, 5}),
              ElementsAre(7, 3, 2, 10));
  EXPECT_THAT(SizesOf(BySizes({7, 3, 9, 1}), {7, 3, 4, 5}),
              ElementsAre(7, 3, 9, 1));
  EXPECT_THAT(SizesOf(ByScales({1, 2}), {0, 0}), ElementsAre(0, 0));
}

TEST(ResizedAxesTest, KeepTheAspectRatio) {
  EXPECT_THAT(SizesOf(BySizes({7, 8}, {2, 3}, "not_larger"), {1, 1, 2, 4}),
              ElementsAre(1, 1, 4, 8));
  EXPECT_THAT(SizesOf(BySizes({7, 8}, {2, 3}, "not_smaller"), {1, 1, 2, 4}),
              ElementsAre(1, 1, 7, 14));
}

TEST(ResizedAxesTest, WhatIsNoneIsRefused) {
  const auto refused = [](const ResizeGiven& given) {
    const auto axes = ResizedAxes(given, {7, 3});
    EXPECT_EQ(axes.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(axes.status().message());
  };
  EXPECT_THAT(refused({}), HasSubstr("one of scales and sizes"));
  ResizeGiven both = ByScales({1, 1});
  both.sizes = {1, 1};
  EXPECT_THAT(refused(both), HasSubstr("one of scales and sizes"));
  EXPECT_EQ(refused(ByScales({1})), "there are 1 scales for 2 axes");
  EXPECT_EQ(refused(BySizes({1, 2}, {0})), "there are 2 sizes for 1 axes");
  EXPECT_EQ(refused(ByScales({1, 2}, {1, -1})), "axes name dimension 1 twice");
  EXPECT_THAT(refused(ByScales({1}, {2})), HasSubstr("axis 2 is outside"));
  for (const float scale : {0.0f, -1.0f, std::nanf(""),
                            std::numeric_limits<float>::infinity(), 1e30f}) {
    EXPECT_THAT(refused(ByScales({1, scale})),
                HasSubstr("dimension 1 of 3 cannot be scaled by"));
  }
  EXPECT_THAT(refused(BySizes({1, -1})), HasSubstr("cannot become one of -1"));
  EXPECT_THAT(refused(BySizes({1, std::numeric_limits<int64_t>::max()})),
              HasSubstr("cannot become one of"));
  EXPECT_THAT(refused(BySizes({1, 1}, {}, "fill")), HasSubstr("\"fill\""));
}

}  // namespace
}  // namespace syncline
