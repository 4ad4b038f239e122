// Goal: evaluation numbers are exact, whatever the batch size, and absent where
// they are not defined.
// Method: hand-made cases, and random ones against the formulas.

#include "worker/evaluation/evaluation_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/batch.h"

namespace syncline::worker {
namespace {

using ::testing::DoubleEq;
using ::testing::Optional;

constexpr auto kSigmoid = LossSpec::SIGMOID_CROSS_ENTROPY;
constexpr auto kSoftmax = LossSpec::SOFTMAX_CROSS_ENTROPY;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

constexpr int kAll[] = {ACCURACY,    AUC,        TOP5_ACCURACY,     LOG_LOSS,
                        CALIBRATION, PERPLEXITY, MEAN_SQUARED_ERROR};

struct Scored {
  std::vector<float> scores;
  std::vector<float> labels;
};

EvaluationMetrics Evaluate(LossSpec::Kind loss, const Scored& data,
                           int64_t width = 1) {
  EvaluationMetrics metrics(loss, kAll);
  metrics.Add(0, data.scores, width, data.labels);
  return metrics;
}

// Two logits, whose difference is one.
Scored Doubled(const Scored& one) {
  Scored two;
  two.labels = one.labels;
  for (const float score : one.scores) {
    two.scores.insert(two.scores.end(), {-0.5f * score, 0.5f * score});
  }
  return two;
}

Scored RandomBinary(uint64_t seed, int count) {
  Random random(seed);
  Scored data;
  for (int i = 0; i < count; ++i) {
    data.scores.push_back(static_cast<float>(6 * random.Uniform() - 3));
    data.labels.push_back(random.Below(2));
  }
  return data;
}

TEST(EvaluationMetricsTest, AucOfKnownOrders) {
  EXPECT_THAT(Evaluate(kSigmoid, {{1, 2, 3, 4}, {0, 0, 1, 1}}).auc(),
              Optional(1.0));
  EXPECT_THAT(Evaluate(kSigmoid, {{5, 5, 4, 5}, {0, 1, 1, 0}}).auc(),
              Optional(0.25));
}

TEST(EvaluationMetricsTest, AucIsAbsentWhereItIsNotDefined) {
  EXPECT_EQ(Evaluate(kSigmoid, {{1, 2}, {1, 1}}).auc(), std::nullopt);
  EXPECT_EQ(Evaluate(kSigmoid, {{1, 2}, {0, 0}}).auc(), std::nullopt);
  EXPECT_EQ(Evaluate(kSigmoid, {{}, {}}).auc(), std::nullopt);
  EXPECT_EQ(Evaluate(kSigmoid, {{kNan, 2}, {0, 1}}).auc(), std::nullopt);
  EXPECT_EQ(Evaluate(kSoftmax, {{1, 2, 3, 4, 5, 6}, {0, 1}}, 3).auc(),
            std::nullopt);
  EvaluationMetrics not_asked(kSigmoid, {ACCURACY});
  not_asked.Add(0, {1, 2}, 1, {0, 1});
  EXPECT_EQ(not_asked.auc(), std::nullopt);
  EXPECT_EQ(not_asked.log_loss(), std::nullopt);
  EXPECT_EQ(not_asked.calibration(), std::nullopt);
}

TEST(EvaluationMetricsTest, TwoLogitsAreAsGoodAsTheirDifference) {
  const Scored one = RandomBinary(3, 200);
  const EvaluationMetrics sigmoid = Evaluate(kSigmoid, one);
  const EvaluationMetrics softmax = Evaluate(kSoftmax, Doubled(one), 2);
  EXPECT_EQ(softmax.auc(), sigmoid.auc());
  EXPECT_EQ(softmax.calibration(), sigmoid.calibration());
  EXPECT_EQ(softmax.mean_squared_error(), sigmoid.mean_squared_error());
  EXPECT_NEAR(*softmax.log_loss(), *sigmoid.log_loss(), 1e-6);
}

TEST(EvaluationMetricsTest, LogLossCalibrationAndBrierScoreByTheirFormulas) {
  const Scored data = RandomBinary(5, 100);
  double log_loss = 0;
  double sum = 0;
  double squares = 0;
  double positives = 0;
  for (int i = 0; i < 100; ++i) {
    const double p = 1 / (1 + std::exp(-static_cast<double>(data.scores[i])));
    const double y = data.labels[i];
    log_loss -= y * std::log(p) + (1 - y) * std::log(1 - p);
    sum += p;
    squares += (p - y) * (p - y);
    positives += y;
  }
  const EvaluationMetrics metrics = Evaluate(kSigmoid, data);
  EXPECT_NEAR(*metrics.log_loss(), log_loss / 100, 1e-12);
  EXPECT_NEAR(*metrics.perplexity(), std::exp(log_loss / 100), 1e-12);
  EXPECT_NEAR(*metrics.calibration(), sum / positives, 1e-12);
  EXPECT_NEAR(*metrics.mean_squared_error(), squares / 100, 1e-12);
}

TEST(EvaluationMetricsTest, LogLossOfManyLogits) {
  // Probabilities 1/2, 1/4, 1/4; shifted far from 0, which changes nothing.
  const float a = 1000 + std::log(2.0f);
  const EvaluationMetrics metrics =
      Evaluate(kSoftmax, {{a, 1000, 1000, a, 1000, 1000}, {0, 2}}, 3);
  EXPECT_NEAR(*metrics.log_loss(), 1.5 * std::log(2.0), 1e-4);
  EXPECT_NEAR(*metrics.perplexity(), std::pow(2.0, 1.5), 1e-3);
  EXPECT_EQ(metrics.calibration(), std::nullopt);
  EXPECT_EQ(metrics.mean_squared_error(), std::nullopt);
}

TEST(EvaluationMetricsTest, CertaintyIsFiniteWhereItIsRight) {
  EXPECT_THAT(Evaluate(kSigmoid, {{2000, -2000}, {1, 0}}).log_loss(),
              Optional(0.0));
  EXPECT_THAT(Evaluate(kSigmoid, {{2000}, {0}}).log_loss(), Optional(2000.0));
  EXPECT_THAT(Evaluate(kSoftmax, {{2000, -2000}, {0}}, 2).log_loss(),
              Optional(0.0));
}

TEST(EvaluationMetricsTest, CalibrationNeedsAPositive) {
  EXPECT_EQ(Evaluate(kSigmoid, {{1, 2}, {0, 0}}).calibration(), std::nullopt);
  EXPECT_THAT(Evaluate(kSigmoid, {{0, 0, 0, 0}, {1, 0, 0, 0}}).calibration(),
              Optional(DoubleEq(2)));
}

TEST(EvaluationMetricsTest, Top5CountsTheFiveLargest) {
  // Class 0 is 5th, 6th, tied for the 5th place and first of it, NaN.
  const Scored data = {{2, 9, 8, 7, 6, 1,  //
                        1, 9, 8, 7, 6, 2,  //
                        2, 9, 8, 7, 6, 2,  //
                        9, 1, 1, 1, 1, kNan},
                       {0, 0, 0, 0}};
  EXPECT_THAT(Evaluate(kSoftmax, data, 6).top5_accuracy(), Optional(0.5));
  // The last of equals loses.
  EXPECT_THAT(Evaluate(kSoftmax, {{2, 9, 8, 7, 6, 2}, {5}}, 6).top5_accuracy(),
              Optional(0.0));
  EXPECT_EQ(Evaluate(kSoftmax, {{1, 2, 3, 4, 5}, {0}}, 5).top5_accuracy(),
            std::nullopt);
}

TEST(EvaluationMetricsTest, AccuracyOfManyLogitsIsArgmax) {
  // Right, wrong, and a tie, which goes to the first.
  const Scored data = {{1, 5, 2, 9, 0, 1, 4, 4, 0}, {1, 2, 0}};
  EXPECT_THAT(Evaluate(kSoftmax, data, 3).accuracy(),
              Optional(DoubleEq(2.0 / 3)));
}

TEST(EvaluationMetricsTest, AccuracyOfOneLogitIsItsSign) {
  const Scored data = {{0.1f, -0.1f, 0.0f, -3, 2}, {1, 1, 0, 0, 0}};
  EXPECT_THAT(Evaluate(kSigmoid, data).accuracy(), Optional(DoubleEq(0.6)));
}

TEST(EvaluationMetricsTest, NanIsNeverRight) {
  EXPECT_THAT(Evaluate(kSigmoid, {{kNan, kNan}, {0, 1}}).accuracy(),
              Optional(0.0));
  EXPECT_THAT(Evaluate(kSoftmax, {{kNan, 1, 1, kNan}, {0, 1}}, 2).accuracy(),
              Optional(0.0));
}

TEST(EvaluationMetricsTest, RegressionHasItsLossAndSquaredError) {
  EvaluationMetrics metrics(LossSpec::MEAN_SQUARED_ERROR, kAll);
  metrics.Add(6, {1, 2, 3, 4}, 2, {1, 0, 3, 7});
  EXPECT_EQ(metrics.samples(), 2);
  EXPECT_EQ(metrics.loss(), 3);
  EXPECT_THAT(metrics.mean_squared_error(), Optional(DoubleEq(3.25)));
  EXPECT_EQ(metrics.accuracy(), std::nullopt);
  EXPECT_EQ(metrics.auc(), std::nullopt);
  EXPECT_EQ(metrics.log_loss(), std::nullopt);
}

TEST(EvaluationMetricsTest, ReportSetsWhatIsThere) {
  Evaluation evaluation;
  EvaluationMetrics metrics(kSigmoid, {LOG_LOSS, CALIBRATION});
  metrics.Add(3, {0, 0}, 1, {1, 0});
  metrics.Report(&evaluation);
  EXPECT_EQ(evaluation.samples(), 2u);
  EXPECT_EQ(evaluation.loss(), 1.5);
  EXPECT_DOUBLE_EQ(evaluation.log_loss(), std::log(2.0));
  EXPECT_DOUBLE_EQ(evaluation.calibration(), 1);
  EXPECT_FALSE(evaluation.has_accuracy() || evaluation.has_auc() ||
               evaluation.has_perplexity() ||
               evaluation.has_mean_squared_error());
}

TEST(EvaluationMetricsTest, NothingEvaluated) {
  const EvaluationMetrics metrics(kSigmoid, kAll);
  EXPECT_EQ(metrics.samples(), 0);
  EXPECT_EQ(metrics.loss(), 0);
  EXPECT_EQ(metrics.accuracy(), std::nullopt);
  EXPECT_EQ(metrics.log_loss(), std::nullopt);
  EXPECT_EQ(metrics.perplexity(), std::nullopt);
  EXPECT_EQ(metrics.mean_squared_error(), std::nullopt);
}

TEST(EvaluationMetricsTest, BatchSizeDoesNotMatter) {
  const Scored data = RandomBinary(8, 97);
  const EvaluationMetrics whole = Evaluate(kSigmoid, data);
  for (const size_t batch : {1, 10, 96}) {
    EvaluationMetrics parts(kSigmoid, kAll);
    for (size_t begin = 0; begin < data.labels.size(); begin += batch) {
      const size_t end = std::min(begin + batch, data.labels.size());
      parts.Add(0.25 * (end - begin),
                absl::MakeSpan(data.scores).subspan(begin, end - begin), 1,
                absl::MakeSpan(data.labels).subspan(begin, end - begin));
    }
    EXPECT_EQ(parts.samples(), 97);
    EXPECT_EQ(parts.loss(), 0.25);
    EXPECT_EQ(parts.accuracy(), whole.accuracy());
    EXPECT_EQ(parts.auc(), whole.auc());
    EXPECT_EQ(parts.log_loss(), whole.log_loss());
    EXPECT_EQ(parts.calibration(), whole.calibration());
  }
}

TEST(EvaluationMetricsTest, IgnoredPositionsCountForNothing) {
  const float x = kIgnoredLabel;
  EvaluationMetrics metrics(kSoftmax, kAll);
  metrics.Add(3, {1, 2, 5, 0, 0, 3, 9, 0}, 2, {1, x, 0, x}, 2);
  EvaluationMetrics without(kSoftmax, kAll);
  without.Add(3, {1, 2, 0, 3}, 2, {1, 0});
  EXPECT_EQ(metrics.samples(), 2);
  EXPECT_EQ(metrics.loss(), 1.5);
  EXPECT_THAT(metrics.accuracy(), Optional(0.5));
  EXPECT_EQ(metrics.auc(), without.auc());
  EXPECT_EQ(metrics.log_loss(), without.log_loss());
  EXPECT_EQ(metrics.mean_squared_error(), without.mean_squared_error());
  EXPECT_EQ(metrics.calibration(), without.calibration());
  EvaluationMetrics nothing(kSoftmax, kAll);
  nothing.Add(0, {1, 2}, 2, {x});
  EXPECT_EQ(nothing.samples(), 1);
  EXPECT_EQ(nothing.accuracy(), std::nullopt);
  EXPECT_EQ(nothing.perplexity(), std::nullopt);
}

TEST(EvaluationMetricsTest, MetricsAreOverThePositionsOfSamples) {
  EvaluationMetrics metrics(kSoftmax, kAll);
  // Two samples of three positions with two logits each; loss_sum is of means.
  metrics.Add(1.5, {9, 0, 9, 0, 0, 9, 9, 0, 0, 9, 0, 9}, 2, {0, 0, 0, 0, 1, 1},
              /*positions=*/3);
  EXPECT_EQ(metrics.samples(), 2);
  EXPECT_DOUBLE_EQ(metrics.loss(), 0.75);
  EXPECT_THAT(metrics.accuracy(), Optional(DoubleEq(5.0 / 6)));
  EXPECT_NEAR(*metrics.log_loss(), 9.0 / 6 + std::log1p(std::exp(-9)), 1e-9);
}

}  // namespace
}  // namespace syncline::worker
