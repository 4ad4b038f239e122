// Goal: the best evaluation is the best by its metric, in the direction in
// which that metric is better. Method: sequences of values for each metric.

#include "worker/evaluation/best_evaluation.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

// The positions of the evaluations that are the best so far.
std::string Best(Metric metric, const std::vector<double>& values) {
  BestEvaluation best(metric);
  std::string positions;
  for (size_t i = 0; i < values.size(); ++i) {
    Evaluation evaluation;
    const auto* const field = Evaluation::descriptor()->FindFieldByName(
        absl::AsciiStrToLower(Metric_Name(metric)));
    evaluation.GetReflection()->SetDouble(&evaluation, field, values[i]);
    if (best.Offer(evaluation)) positions += static_cast<char>('0' + i);
  }
  return positions;
}

TEST(BestEvaluationTest, SomeMetricsAreBetterWhenLarger) {
  for (const Metric metric : {ACCURACY, AUC, TOP5_ACCURACY}) {
    EXPECT_EQ(Best(metric, {0.5, 0.4, 0.7, 0.7, 0.6, 0.8}), "025")
        << Metric_Name(metric);
  }
}

TEST(BestEvaluationTest, OthersWhenSmaller) {
  for (const Metric metric : {LOSS, LOG_LOSS, PERPLEXITY, MEAN_SQUARED_ERROR}) {
    EXPECT_EQ(Best(metric, {0.5, 0.6, 0.4, 0.4, 0.0, 0.3}), "024")
        << Metric_Name(metric);
  }
}

TEST(BestEvaluationTest, CalibrationWhenNearerToOne) {
  EXPECT_EQ(Best(CALIBRATION, {2, 0.5, 1.2, 0.9, 1.2, 1}), "01235");
}

TEST(BestEvaluationTest, WhatIsNoNumberIsNeverTheBest) {
  EXPECT_EQ(Best(LOSS, {NAN, INFINITY, NAN, 3, NAN, -INFINITY}), "135");
  EXPECT_EQ(Best(AUC, {NAN, 0.5, NAN}), "1");
  BestEvaluation by_auc(AUC);
  EXPECT_FALSE(by_auc.Offer(Evaluation())) << "it has no AUC";
  BestEvaluation by_nothing(METRIC_UNSPECIFIED);
  Evaluation evaluation;
  evaluation.set_loss(0.1);
  EXPECT_FALSE(by_nothing.Offer(evaluation));
}

}  // namespace
}  // namespace syncline::worker
