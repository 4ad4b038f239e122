// Goal: every schedule has the shape that proto/job_spec.proto states, at its
// ends and in between.
// Method: values computed by hand, and monotony where the shape promises it.

#include "kernels/optimizer/learning_rate.h"

#include <cmath>
#include <cstdint>

#include "gtest/gtest.h"

namespace syncline {
namespace {

using Schedule = LearningRate::Schedule;

LearningRate Rate(Schedule schedule) {
  return {.schedule = schedule,
          .base = 0.8,
          .step_clocks = 10,
          .gamma = 0.5,
          .warmup_clocks = 20,
          .total_clocks = 100,
          .start = 0.2,
          .final = 0.1};
}

TEST(LearningRateTest, Constant) {
  const LearningRate rate = Rate(Schedule::kConstant);
  EXPECT_EQ(rate.At(0), 0.8);
  EXPECT_EQ(rate.At(1'000'000'000'000), 0.8);
}

TEST(LearningRateTest, StepHalvesEveryTenClocks) {
  const LearningRate rate = Rate(Schedule::kStep);
  EXPECT_EQ(rate.At(0), 0.8);
  EXPECT_EQ(rate.At(9), 0.8);
  EXPECT_EQ(rate.At(10), 0.4);
  EXPECT_EQ(rate.At(19), 0.4);
  EXPECT_EQ(rate.At(30), 0.1);
}

TEST(LearningRateTest, CosineGoesFromBaseToFinal) {
  const LearningRate rate = Rate(Schedule::kCosine);
  EXPECT_EQ(rate.At(0), 0.8);
  EXPECT_NEAR(rate.At(25), 0.1 + 0.7 * (1 + std::sqrt(0.5)) / 2, 1e-12);
  EXPECT_NEAR(rate.At(50), 0.45, 1e-12);
  EXPECT_EQ(rate.At(100), 0.1);
  EXPECT_EQ(rate.At(5000), 0.1);
  for (int64_t t = 0; t < 100; ++t) EXPECT_GT(rate.At(t), rate.At(t + 1));
}

TEST(LearningRateTest, LinearWarmupEndsAtBase) {
  LearningRate rate = Rate(Schedule::kLinearWarmup);
  EXPECT_EQ(rate.At(0), 0.2);
  EXPECT_NEAR(rate.At(5), 0.35, 1e-12);
  EXPECT_NEAR(rate.At(19), 0.77, 1e-12);
  EXPECT_EQ(rate.At(20), 0.8);
  EXPECT_EQ(rate.At(5000), 0.8);
  rate.warmup_clocks = 0;
  EXPECT_EQ(rate.At(0), 0.8);
}

TEST(LearningRateTest, WarmupThenLinearDecay) {
  LearningRate rate = Rate(Schedule::kWarmupLinearDecay);
  EXPECT_EQ(rate.At(0), 0.2);
  EXPECT_NEAR(rate.At(10), 0.5, 1e-12);
  EXPECT_EQ(rate.At(20), 0.8);
  EXPECT_NEAR(rate.At(60), 0.45, 1e-12);
  EXPECT_EQ(rate.At(100), 0.1);
  EXPECT_EQ(rate.At(101), 0.1);
  rate.warmup_clocks = 0;
  EXPECT_EQ(rate.At(0), 0.8);
}

TEST(LearningRateTest, OneCycleRisesLinearlyAndFallsAsACosine) {
  const LearningRate rate = Rate(Schedule::kOneCycle);
  EXPECT_EQ(rate.At(0), 0.2);
  EXPECT_NEAR(rate.At(10), 0.5, 1e-12);
  EXPECT_EQ(rate.At(20), 0.8);
  EXPECT_NEAR(rate.At(60), 0.45, 1e-12);
  EXPECT_NEAR(rate.At(40), 0.1 + 0.7 * (1 + std::sqrt(0.5)) / 2, 1e-12);
  EXPECT_EQ(rate.At(100), 0.1);
  EXPECT_EQ(rate.At(5000), 0.1);
}

TEST(LearningRateTest, RangeTestGrowsExponentially) {
  const LearningRate rate = Rate(Schedule::kRangeTest);
  EXPECT_EQ(rate.At(0), 0.2);
  EXPECT_NEAR(rate.At(50), 0.4, 1e-12);  // halfway in the exponent
  EXPECT_EQ(rate.At(100), 0.8);
  EXPECT_EQ(rate.At(5000), 0.8);
  EXPECT_NEAR(rate.At(1) / rate.At(0), rate.At(81) / rate.At(80), 1e-12);
}

}  // namespace
}  // namespace syncline
