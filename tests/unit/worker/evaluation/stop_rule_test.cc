// Goal: a job ends after so many evaluations in a row that are no better, and
// says why. Method: sequences of values.

#include "worker/evaluation/stop_rule.h"

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

using ::testing::IsEmpty;

StopSpec Stop(Metric metric, uint32_t patience, double min_change = 0) {
  StopSpec spec;
  spec.set_metric(metric);
  spec.set_patience(patience);
  spec.set_min_change(min_change);
  return spec;
}

// The evaluations, from 1, after which the rule says that the job ends; it goes
// on all the same.
std::vector<int> Ends(const StopSpec& spec, const std::vector<double>& values) {
  StopRule rule(spec);
  std::vector<int> ends;
  for (size_t i = 0; i < values.size(); ++i) {
    Evaluation evaluation;
    evaluation.set_epoch(static_cast<uint32_t>(i + 1));
    if (spec.metric() == LOSS) evaluation.set_loss(values[i]);
    if (spec.metric() == ACCURACY) evaluation.set_accuracy(values[i]);
    if (!rule.Offer(evaluation).empty())
      ends.push_back(static_cast<int>(i + 1));
  }
  return ends;
}

using Numbers = std::vector<int>;

TEST(StopRuleTest, PatienceCountsEvaluationsInARow) {
  EXPECT_EQ(Ends(Stop(LOSS, 2), {5, 4, 4, 4}), Numbers({4}));
  EXPECT_EQ(Ends(Stop(LOSS, 2), {5, 6, 4, 6, 3, 3, 2}), Numbers());
  EXPECT_EQ(Ends(Stop(LOSS, 1), {5, 4, 4.5}), Numbers({3}));
  // The best before them, not the one before.
  EXPECT_EQ(Ends(Stop(LOSS, 3), {3, 6, 5, 4}), Numbers({4}));
}

TEST(StopRuleTest, BetterIsInTheMetricsDirection) {
  EXPECT_EQ(Ends(Stop(ACCURACY, 2), {0.5, 0.6, 0.7, 0.8}), Numbers());
  EXPECT_EQ(Ends(Stop(ACCURACY, 2), {0.5, 0.4, 0.3}), Numbers({3}));
}

TEST(StopRuleTest, ASmallChangeDoesNotCount) {
  EXPECT_EQ(Ends(Stop(LOSS, 2, 0.5), {5, 4.75, 4.25, 4.25, 4}), Numbers({5}));
  // Small steps add up, since the best stays what it was.
  EXPECT_EQ(Ends(Stop(LOSS, 3, 0.5), {5, 4.75, 4.5, 4.25, 4, 3.75}), Numbers());
}

TEST(StopRuleTest, WhatIsNoNumberIsNotBetter) {
  EXPECT_EQ(Ends(Stop(LOSS, 2), {NAN, NAN, 1}), Numbers({2}));
  EXPECT_EQ(Ends(Stop(LOSS, 2), {1, NAN, INFINITY}), Numbers({3}));
  // One that is not computed.
  EXPECT_EQ(Ends(Stop(AUC, 1), {1}), Numbers({1}));
}

TEST(StopRuleTest, SaysWhy) {
  StopRule rule(Stop(LOSS, 2, 0.5));
  Evaluation evaluation;
  evaluation.set_epoch(3);
  evaluation.set_loss(0.25);
  EXPECT_THAT(rule.Offer(evaluation), IsEmpty());
  EXPECT_THAT(rule.Offer(evaluation), IsEmpty());
  EXPECT_EQ(rule.Offer(evaluation),
            "LOSS, 0.25 at epoch 3, has become no better by more than 0.5 in 2 "
            "evaluations");
  StopRule none(std::nullopt);
  EXPECT_THAT(none.Offer(evaluation), IsEmpty());
}

}  // namespace
}  // namespace syncline::worker
