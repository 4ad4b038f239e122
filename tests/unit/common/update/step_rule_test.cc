// Goal: the scale of a step is the mean's, and that of a clipped norm where the
// norm is too large; the rate is that of the clock.
// Method: examples at, below and above the limit.

#include "common/update/step_rule.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(StepRuleTest, TheScaleIsTheMeansUnlessTheNormIsTooLarge) {
  StepRule rule;
  EXPECT_EQ(rule.GradientScale(3, 1e30), 1 / 3.0f) << "nothing is clipped";
  rule.clip_norm = 2;
  EXPECT_EQ(rule.GradientScale(3, -1), 1 / 3.0f) << "the norm is unknown";
  EXPECT_EQ(rule.GradientScale(3, 4), 1 / 3.0f) << "the norm is the limit";
  EXPECT_EQ(rule.GradientScale(4, 64), 0.25f * 0.25f);
}

// In double, and rounded once: 1/3 in float32 times 2/3 would be another float.
TEST(StepRuleTest, TheScaleIsRoundedOnce) {
  StepRule rule;
  rule.clip_norm = 0.1;
  for (uint64_t samples = 1; samples < 200; ++samples) {
    const double exact = 1.0 / samples * (0.1 / std::sqrt(0.7));
    EXPECT_EQ(rule.GradientScale(samples, 0.7), static_cast<float>(exact));
  }
}

TEST(StepRuleTest, ANormThatIsNotANumberClipsNothing) {
  StepRule rule;
  rule.clip_norm = 2;
  EXPECT_EQ(rule.GradientScale(4, std::numeric_limits<double>::quiet_NaN()),
            0.25f);
}

TEST(StepRuleTest, AStepHasRateAndScaleOfItsClock) {
  StepRule rule;
  rule.learning_rate = {.schedule = LearningRate::Schedule::kStep,
                        .base = 1,
                        .step_clocks = 10,
                        .gamma = 0.5};
  rule.clip_norm = 2;
  const OptimizerStep step = rule.StepAt(25, 4, 64);
  EXPECT_EQ(step.learning_rate, 0.25f);
  EXPECT_EQ(step.learning_rate, rule.RateAt(25));
  EXPECT_EQ(step.gradient_scale, 0.0625f);
  EXPECT_EQ(step.t, 1);
}

TEST(StepRuleTest, TheRateIsTimesTheFactorOfItsClocksRegime) {
  StepRule rule;
  rule.learning_rate = {.schedule = LearningRate::Schedule::kStep,
                        .base = 0.3,
                        .step_clocks = 10,
                        .gamma = 0.5};
  const StepRule plain = rule;
  ASSERT_TRUE(
      rule.regimes.Add({.first_clock = 5, .learning_rate_factor = 0.7}, 0)
          .ok());
  ASSERT_TRUE(rule.regimes.Add({.first_clock = 12}, 0).ok());
  for (const int64_t clock : {0, 4, 12, 100}) {
    EXPECT_EQ(rule.RateAt(clock), plain.RateAt(clock)) << clock;
  }
  // In double, and rounded once.
  EXPECT_EQ(rule.RateAt(5), static_cast<float>(0.3 * 0.7));
  EXPECT_EQ(rule.RateAt(11), static_cast<float>(0.3 * 0.5 * 0.7));
  EXPECT_EQ(rule.StepAt(11, 4).learning_rate, rule.RateAt(11));
}

}  // namespace
}  // namespace syncline
