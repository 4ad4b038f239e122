// Goal: evaluation numbers are exact, whatever the batch size, and absent where
// they are not defined.
// Method: hand-made cases, and random ones against brute force over all pairs.

#include "worker/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::DoubleEq;
using ::testing::Optional;

constexpr auto kSigmoid = LossSpec::SIGMOID_CROSS_ENTROPY;
constexpr auto kSoftmax = LossSpec::SOFTMAX_CROSS_ENTROPY;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Scored {
  std::vector<float> scores;
  std::vector<float> labels;
};

EvaluationMetrics Evaluate(LossSpec::Kind loss, const Scored& data,
                           int64_t width = 1) {
  EvaluationMetrics metrics(loss, true, true);
  metrics.Add(0, data.scores, width, data.labels);
  return metrics;
}

// Fraction of (positive, negative) pairs in the right order.
double BruteForceAuc(const Scored& data) {
  double right = 0;
  double pairs = 0;
  for (size_t i = 0; i < data.labels.size(); ++i) {
    for (size_t j = 0; j < data.labels.size(); ++j) {
      if (data.labels[i] != 1 || data.labels[j] != 0) continue;
      pairs += 1;
      right += data.scores[i] > data.scores[j]    ? 1
               : data.scores[i] == data.scores[j] ? 0.5
                                                  : 0;
    }
  }
  return right / pairs;
}

TEST(EvaluationMetricsTest, AucEqualsBruteForceOverAllPairs) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    Random random(seed);
    Scored data;
    const int count = 2 + random.Below(100);
    const int levels = 1 + random.Below(30);  // few levels make many ties
    for (int i = 0; i < count; ++i) {
      data.scores.push_back(static_cast<float>(random.Below(levels)) - 7);
      data.labels.push_back(i < 2 ? i : random.Below(2));
    }
    EXPECT_THAT(Evaluate(kSigmoid, data).auc(),
                Optional(DoubleEq(BruteForceAuc(data))));
  }
}

TEST(EvaluationMetricsTest, AucOfKnownOrders) {
  EXPECT_THAT(Evaluate(kSigmoid, {{1, 2, 3, 4}, {0, 0, 1, 1}}).auc(),
              Optional(1.0));
  EXPECT_THAT(Evaluate(kSigmoid, {{4, 3, 2, 1}, {0, 0, 1, 1}}).auc(),
              Optional(0.0));
  EXPECT_THAT(Evaluate(kSigmoid, {{5, 5, 5, 5}, {0, 1, 1, 0}}).auc(),
              Optional(0.5));
  EXPECT_THAT(Evaluate(kSigmoid, {{-kInfinity, kInfinity, 0}, {0, 1, 1}}).auc(),
              Optional(1.0));
}

TEST(EvaluationMetricsTest, AucIsAbsentWhereItIsNotDefined) {
  EXPECT_EQ(Evaluate(kSigmoid, {{1, 2}, {1, 1}}).auc(), std::nullopt);
  EXPECT_EQ(Evaluate(kSigmoid, {{1, 2}, {0, 0}}).auc(), std::nullopt);
  EXPECT_EQ(Evaluate(kSigmoid, {{}, {}}).auc(), std::nullopt);
  EXPECT_EQ(Evaluate(kSigmoid, {{kNan, 2}, {0, 1}}).auc(), std::nullopt);
  EXPECT_EQ(Evaluate(kSoftmax, {{1, 2, 3, 4, 5, 6}, {0, 1}}, 3).auc(),
            std::nullopt);
  EvaluationMetrics not_asked(kSigmoid, true, false);
  not_asked.Add(0, {1, 2}, 1, {0, 1});
  EXPECT_EQ(not_asked.auc(), std::nullopt);
}

TEST(EvaluationMetricsTest, AucOfTwoLogitsIsThatOfTheirDifference) {
  Random random(3);
  Scored two;
  Scored one;
  for (int i = 0; i < 200; ++i) {
    const float a = random.Below(50);
    const float b = random.Below(50);
    two.scores.insert(two.scores.end(), {a, b});
    one.scores.push_back(b - a);
    two.labels.push_back(i % 2);
    one.labels.push_back(i % 2);
  }
  EXPECT_THAT(Evaluate(kSoftmax, two, 2).auc(),
              Optional(DoubleEq(BruteForceAuc(one))));
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

TEST(EvaluationMetricsTest, RegressionHasALossOnly) {
  EvaluationMetrics metrics(LossSpec::MEAN_SQUARED_ERROR, true, true);
  metrics.Add(6, {1, 2, 3, 4}, 2, {1, 2, 3, 4});
  EXPECT_EQ(metrics.samples(), 2);
  EXPECT_EQ(metrics.loss(), 3);
  EXPECT_EQ(metrics.accuracy(), std::nullopt);
  EXPECT_EQ(metrics.auc(), std::nullopt);
}

TEST(EvaluationMetricsTest, NothingEvaluated) {
  const EvaluationMetrics metrics(kSigmoid, true, true);
  EXPECT_EQ(metrics.samples(), 0);
  EXPECT_EQ(metrics.loss(), 0);
  EXPECT_EQ(metrics.accuracy(), std::nullopt);
}

TEST(EvaluationMetricsTest, BatchSizeDoesNotMatter) {
  Random random(8);
  Scored data;
  for (int i = 0; i < 97; ++i) {
    data.scores.push_back(static_cast<float>(random.Uniform() - 0.5));
    data.labels.push_back(random.Below(2));
  }
  const EvaluationMetrics whole = Evaluate(kSigmoid, data);
  for (const size_t batch : {1, 10, 96}) {
    EvaluationMetrics parts(kSigmoid, true, true);
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
  }
}

}  // namespace
}  // namespace syncline
