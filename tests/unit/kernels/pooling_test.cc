// Goal: pooling does what it says where numbers are odd: NaN, infinities, ties
// and windows of padding. Method: small planes by hand; sizes and gradients are
// held against the reference by worker_op_table_test.

#include "kernels/pooling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "common/base/random.h"

namespace syncline {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Windows of two over four elements, without overlap.
const Window kPairs = {{.in = 4, .out = 2, .kernel = 2, .stride = 2}};

TEST(PoolingTest, TheFirstOfEqualsIsTheMaximum) {
  const std::vector<float> x = {3, 3, -1, -1};
  std::vector<float> y(2), dx(4, 9);
  std::vector<int32_t> indices(2);
  MaxPool(1, kPairs, x.data(), y.data(), indices.data());
  EXPECT_EQ(y, std::vector<float>({3, -1}));
  EXPECT_EQ(indices, std::vector<int32_t>({0, 2}));
  const std::vector<float> dy = {5, 7};
  MaxPoolGradient(1, kPairs, indices.data(), dy.data(), false, dx.data());
  EXPECT_EQ(dx, std::vector<float>({5, 0, 7, 0}));
}

// Windows of two by two have a path of their own. Without indices, and where
// gradients are added up, the general path runs.
class HalvingPoolTest : public testing::TestWithParam<int64_t> {};

TEST_P(HalvingPoolTest, WindowsOfTwoByTwoAreLikeAnyOthers) {
  Window window = {{.in = 6, .out = 3, .kernel = 2, .stride = 2},
                   {.in = 38, .out = 19, .kernel = 2, .stride = 2}};
  const int64_t channels = GetParam();
  if (channels > 1) window.axes.push_back({.in = channels, .out = channels});
  constexpr int64_t kPlanes = 5;
  const int64_t in = window.in_count(), out = window.out_count();
  Random random(3);
  std::vector<float> x(kPlanes * in);
  for (float& v : x) v = static_cast<float>(random.Below(5));  // with ties
  x[7] = kNan;
  x[12] = -kInf;
  std::vector<float> y(kPlanes * out), general(kPlanes * out);
  std::vector<int32_t> indices(kPlanes * out);
  MaxPool(kPlanes, window, x.data(), y.data(), indices.data());
  MaxPool(kPlanes, window, x.data(), general.data(), nullptr);
  for (int64_t i = 0; i < kPlanes * out; ++i) {
    const float* const plane = x.data() + i / out * in;
    ASSERT_TRUE(y[i] == general[i] ||
                (y[i] != y[i] && general[i] != general[i]))
        << i;
    const int64_t o = i % out;
    const int64_t result = o / channels;
    const int64_t corner =
        (result / 19 * 2 * 38 + result % 19 * 2) * channels + o % channels;
    bool earlier = false;  // the first of equals
    for (const int64_t step : {0, 1, 38, 39}) {
      const int64_t at = corner + step * channels;
      if (at < indices[i] && plane[at] == y[i]) earlier = true;
    }
    EXPECT_FALSE(earlier) << i;
    EXPECT_TRUE(plane[indices[i]] == y[i] || y[i] != y[i]) << i;
  }
  std::vector<float> dx(kPlanes * in, 9), added(kPlanes * in, 0);
  MaxPoolGradient(kPlanes, window, indices.data(), general.data(), false,
                  dx.data());
  MaxPoolGradient(kPlanes, window, indices.data(), general.data(), true,
                  added.data());
  for (size_t i = 0; i < dx.size(); ++i) {
    EXPECT_TRUE(dx[i] == added[i] || dx[i] != dx[i]) << i;
  }
}

// In rows of one channel, and in blocks.
INSTANTIATE_TEST_SUITE_P(Channels, HalvingPoolTest, testing::Values(1, 8, 16));

TEST(PoolingTest, NanIsLargerThanAnything) {
  for (const std::vector<float>& x :
       {std::vector<float>{kNan, kInf, kInf, kNan}, {kNan, kNan, 1, kNan}}) {
    std::vector<float> y(2);
    std::vector<int32_t> indices(2);
    MaxPool(1, kPairs, x.data(), y.data(), indices.data());
    EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
    EXPECT_EQ(indices[1], 3);
    y = {0, 0};
    MaxPool(1, kPairs, x.data(), y.data(), nullptr);
    EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
  }
}

TEST(PoolingTest, MinusInfinityHasAnIndex) {
  const std::vector<float> x(4, -kInf);
  std::vector<float> y(2);
  std::vector<int32_t> indices(2);
  MaxPool(1, kPairs, x.data(), y.data(), indices.data());
  EXPECT_EQ(y, std::vector<float>({-kInf, -kInf}));
  EXPECT_EQ(indices, std::vector<int32_t>({0, 2}));
}

TEST(PoolingTest, AWindowOfPaddingIsNobodys) {
  const Window window = {
      {.in = 1, .out = 2, .kernel = 1, .stride = 2, .pad_end = 2}};
  const std::vector<float> x = {4};
  std::vector<float> y(2), dx(1);
  std::vector<int32_t> indices(2);
  MaxPool(1, window, x.data(), y.data(), indices.data());
  EXPECT_EQ(y, std::vector<float>({4, -kInf}));
  EXPECT_EQ(indices, std::vector<int32_t>({0, -1}));
  const std::vector<float> dy = {5, 7};
  MaxPoolGradient(1, window, indices.data(), dy.data(), false, dx.data());
  EXPECT_EQ(dx, std::vector<float>({5}));
  AveragePool(1, window, AverageWeights(window, false).data(), x.data(),
              y.data());
  EXPECT_EQ(y, std::vector<float>({4, 0}));
}

}  // namespace
}  // namespace syncline
