// Goal: the fall of a loss per second, and how far off it may be, whatever the
// number of steps. Method: lines with and without noise.

#include "worker/training/loss_window.h"

#include <cmath>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

TEST(LossWindowTest, ALineIsFoundExactly) {
  for (const int steps : {5, 64, 65, 1000, 4097}) {
    LossWindow window;
    for (int i = 1; i <= steps; ++i) window.Add(0.5, 3 - 0.25 * (0.5 * i));
    const LossTrend trend = window.Trend();
    ASSERT_TRUE(trend.known) << steps;
    EXPECT_NEAR(trend.per_second, 0.25, 1e-9) << steps;
    EXPECT_NEAR(trend.last, 3 - 0.125 * steps, 1e-6) << steps;
    EXPECT_NEAR(trend.error, 0, 1e-6) << steps;
    EXPECT_GE(trend.freedom, 3);
    EXPECT_LE(trend.freedom, 62);
  }
}

TEST(LossWindowTest, TooFewLossesAreNoTrend) {
  LossWindow window;
  for (int i = 0; i < 4; ++i) window.Add(1, 1);
  EXPECT_FALSE(window.Trend().known);
  window.Add(1, 1);
  EXPECT_TRUE(window.Trend().known);
  LossWindow still;
  for (int i = 0; i < 10; ++i) still.Add(0, 1);
  EXPECT_FALSE(still.Trend().known) << "no time has passed";
}

// The time of a step without a loss is part of the fall.
TEST(LossWindowTest, TimeWithoutALossCounts) {
  LossWindow window;
  for (int i = 0; i < 20; ++i) {
    window.Skip(1);
    window.Add(1, 10 - 0.5 * i);
  }
  EXPECT_NEAR(window.Trend().per_second, 0.25, 1e-9);
}

// Of lines through noise one in three is off by more than its error, and one in
// twenty by more than twice that.
TEST(LossWindowTest, TheErrorIsThatOfTheNoise) {
  constexpr int kSeeds = 2000;
  int off_by_one = 0;
  int off_by_two = 0;
  double scatter = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Random random(seed);
    LossWindow window;
    for (int i = 1; i <= 300; ++i) {
      window.Add(0.1, 2 - 0.01 * (0.1 * i) + 0.3 * random.Normal());
    }
    const LossTrend trend = window.Trend();
    const double off = std::abs(trend.per_second - 0.01);
    off_by_one += off > trend.error ? 1 : 0;
    off_by_two += off > 2 * trend.error ? 1 : 0;
    scatter += trend.scatter / kSeeds;
  }
  EXPECT_NEAR(off_by_one, 0.32 * kSeeds, 0.05 * kSeeds);
  EXPECT_NEAR(off_by_two, 0.05 * kSeeds, 0.02 * kSeeds);
  EXPECT_NEAR(scatter, 0.3, 0.01);
}

}  // namespace
}  // namespace syncline::worker
