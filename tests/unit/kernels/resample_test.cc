// Goal: weighted sums along an axis, and their gradient, whatever lies around
// the axis. Method: a few numbers by hand; the gradient as the sums' adjoint.
// (worker_op_table_test has interpolation.)

#include "kernels/resample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/testing/arrays.h"

namespace syncline {
namespace {

// Two places become three; the second lies between them.
constexpr int64_t kPlaces[] = {0, 1, 0, 1, 0, 1};
constexpr float kWeights[] = {1, 0, 0.5f, 0.5f, 0, 1};
constexpr ResampleTables kTables = {kPlaces, kWeights};

ResampleShape Three(int64_t outer, int64_t inner) {
  return {.outer = outer, .in = 2, .out = 3, .inner = inner, .taps = 2};
}

TEST(ResampleTest, SumsAlongTheAxis) {
  const std::vector<float> x = {1, 2, 5, 8};
  std::vector<float> y(6, 99);
  Resample(Three(2, 1), kTables, x.data(), y.data());
  EXPECT_EQ(y, (std::vector<float>{1, 1.5, 2, 5, 6.5, 8}));
  Resample(Three(1, 2), kTables, x.data(), y.data());
  EXPECT_EQ(y, (std::vector<float>{1, 2, 3, 5, 5, 8}));
}

TEST(ResampleTest, WhatWeighsNothingIsNotRead) {
  const std::vector<float> x = {1, std::numeric_limits<float>::infinity()};
  std::vector<float> y(3);
  Resample(Three(1, 1), kTables, x.data(), y.data());
  EXPECT_EQ(y[0], 1);
  EXPECT_TRUE(std::isinf(y[2]));
}

TEST(ResampleTest, TheGradientIsTheAdjoint) {
  for (const int64_t taps : {1, 2, 3}) {
    constexpr int64_t kIn = 4, kOut = 5;
    std::vector<int64_t> places;
    std::vector<float> weights;
    for (int64_t t = 0; t < kOut * taps; ++t) {
      places.push_back(t * 7 % kIn);
      weights.push_back(t % 4 == 3 ? 0.0f : 0.5f + static_cast<float>(t));
    }
    const ResampleTables tables = {places.data(), weights.data()};
    for (const int64_t inner : {1, 3}) {
      const ResampleShape s = {
          .outer = 2, .in = kIn, .out = kOut, .inner = inner, .taps = taps};
      const auto x = testing::RandomArray({2, kIn, inner}, 1);
      const auto dy = testing::RandomArray({2, kOut, inner}, 2);
      const std::vector<float> fx = testing::ToFloats(x.values);
      const std::vector<float> fdy = testing::ToFloats(dy.values);
      std::vector<float> y(dy.values.size()), dx(x.values.size(), 99);
      Resample(s, tables, fx.data(), y.data());
      ResampleGradient(s, tables, fdy.data(), /*accumulate=*/false, dx.data());
      ResampleGradient(s, tables, fdy.data(), /*accumulate=*/true, dx.data());
      double forward = 0, backward = 0;
      for (size_t i = 0; i < y.size(); ++i) forward += y[i] * dy.values[i];
      for (size_t i = 0; i < dx.size(); ++i) backward += dx[i] * x.values[i];
      EXPECT_NEAR(backward, 2 * forward, 1e-4 * std::fabs(forward) + 1e-4);
    }
  }
}

}  // namespace
}  // namespace syncline
