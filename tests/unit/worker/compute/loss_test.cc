// Goal: a loss takes exactly the shapes and labels it can mean something for.
// Method: shapes and labels on both sides of each limit, and the message; the
// values themselves are tested in kernels and in the executor.

#include "worker/compute/loss.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/cpu/cpu_device.h"
#include "worker/data/batch.h"

namespace syncline::worker {
namespace {

constexpr auto kSoftmax = LossSpec::SOFTMAX_CROSS_ENTROPY;
constexpr auto kSigmoid = LossSpec::SIGMOID_CROSS_ENTROPY;
constexpr auto kSquare = LossSpec::MEAN_SQUARED_ERROR;

double RunLoss(const Loss& loss, const float* scores, const float* labels,
               float* gradient) {
  CpuStream stream(&ThisMachine());
  double sum = 0;
  loss.Run(stream, scores, labels, gradient, &sum);
  return sum;
}

TEST(LossTest, ShapesThatFit) {
  EXPECT_EQ(Loss::Create(kSoftmax, {4, 10}, 4)->width(), 10);
  EXPECT_EQ(Loss::Create(kSoftmax, {4, 10}, 4)->label_width(), 1);
  EXPECT_EQ(Loss::Create(kSigmoid, {4, 1}, 4)->width(), 1);
  EXPECT_EQ(Loss::Create(kSigmoid, {4}, 4)->width(), 1);
  EXPECT_EQ(Loss::Create(kSquare, {4, 3}, 4)->label_width(), 3);
  EXPECT_EQ(Loss::Create(kSquare, {4}, 4)->label_width(), 1);
}

TEST(LossTest, ShapesThatDoNotFit) {
  for (const auto& [kind, dims] : {std::pair{kSoftmax, Dims{4}},
                                   {kSoftmax, {4, 2, 0}},
                                   {kSigmoid, {4, 2}},
                                   {kSquare, {3, 2}},
                                   {kSquare, {}},
                                   {LossSpec::KIND_UNSPECIFIED, {4, 2}}}) {
    EXPECT_EQ(Loss::Create(kind, dims, 4).status().code(),
              absl::StatusCode::kInvalidArgument)
        << DimsToString(dims);
  }
  EXPECT_EQ(
      Loss::Create(kSigmoid, {4, 2}, 4).status().message(),
      "loss SIGMOID_CROSS_ENTROPY does not take an output of shape [4,2]");
}

TEST(LossTest, LabelsMustBeClasses) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Loss softmax = *Loss::Create(kSoftmax, {2, 3}, 2);
  EXPECT_TRUE(softmax.CheckLabels(2, {0, 2}).ok());
  for (float bad : {-1.0f, 3.0f, 1.5f, nan}) {
    EXPECT_FALSE(softmax.CheckLabels(2, {0, bad}).ok()) << bad;
  }
  const Loss sigmoid = *Loss::Create(kSigmoid, {2, 1}, 2);
  EXPECT_TRUE(sigmoid.CheckLabels(2, {0, 1}).ok());
  EXPECT_EQ(sigmoid.CheckLabels(2, {0, 2}).message(),
            "label 2 of sample 1 in the batch is not one of the 2 classes 0 to "
            "1");
  const Loss square = *Loss::Create(kSquare, {2, 1}, 2);
  EXPECT_TRUE(square.CheckLabels(2, {-7.5f, 1e6f}).ok());
}

TEST(LossTest, EachPositionHasALabelAndTheSampleTheirMean) {
  const Loss loss = *Loss::Create(kSoftmax, {2, 3, 4}, 2);
  EXPECT_EQ(loss.label_width(), 3);
  EXPECT_EQ(loss.positions(), 3);
  EXPECT_EQ(loss.width(), 4);
  std::vector<float> labels = {0, 1, 2, 3, 0, 1};
  ASSERT_TRUE(loss.CheckLabels(2, labels).ok());
  std::vector<float> scores(24);
  for (size_t i = 0; i < scores.size(); ++i) scores[i] = 0.1f * (i * 7 % 11);
  std::vector<float> gradient(24);
  const double sum =
      RunLoss(loss, scores.data(), labels.data(), gradient.data());
  // The six positions as samples of their own.
  const Loss each = *Loss::Create(kSoftmax, {6, 4}, 6);
  std::vector<float> want(24);
  EXPECT_NEAR(sum, RunLoss(each, scores.data(), labels.data(), want.data()) / 3,
              1e-6);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(gradient[i], want[i] / 3, 1e-6) << i;
  }
  EXPECT_NEAR(RunLoss(loss, scores.data(), labels.data(), nullptr), sum, 1e-6);
  labels[4] = 4;
  EXPECT_EQ(loss.CheckLabels(2, labels).message(),
            "label 4 at position 1 of sample 1 in the batch is not one of the "
            "4 classes 0 to 3");
}

TEST(LossTest, ASamplesLossIsTheMeanOverThePositionsThatCount) {
  constexpr int64_t kPositions = 3;
  constexpr int64_t kClasses = 4;
  const Loss loss = *Loss::Create(kSoftmax, {3, kPositions, kClasses}, 3,
                                  /*ignores=*/true);
  // Of the samples two positions count, none, and all.
  const float x = kIgnoredLabel;
  const std::vector<float> labels = {0, x, 2, x, x, x, 3, 1, 0};
  ASSERT_TRUE(loss.CheckLabels(3, labels).ok());
  std::vector<float> scores(labels.size() * kClasses);
  for (size_t i = 0; i < scores.size(); ++i) scores[i] = 0.1f * (i * 7 % 11);
  std::vector<float> gradient(scores.size(), 99.0f);
  const double sum =
      RunLoss(loss, scores.data(), labels.data(), gradient.data());

  const Loss alone = *Loss::Create(kSoftmax, {1, kClasses}, 1);
  double want = 0;
  const std::vector<float> weights = {0.5f, 0,        0.5f,     0,       0,
                                      0,    1 / 3.0f, 1 / 3.0f, 1 / 3.0f};
  for (size_t p = 0; p < labels.size(); ++p) {
    std::vector<float> want_gradient(kClasses);
    if (labels[p] != x) {
      want += weights[p] * RunLoss(alone, &scores[p * kClasses], &labels[p],
                                   want_gradient.data());
    }
    for (int64_t i = 0; i < kClasses; ++i) {
      EXPECT_NEAR(gradient[p * kClasses + i], weights[p] * want_gradient[i],
                  1e-6)
          << p << " " << i;
    }
  }
  EXPECT_NEAR(sum, want, 1e-6);
  EXPECT_NEAR(RunLoss(loss, scores.data(), labels.data(), nullptr), sum, 1e-6);
}

TEST(LossTest, LabelsAreIgnoredOnlyWhereTheJobSaysSo) {
  const Loss strict = *Loss::Create(kSoftmax, {2, 3}, 2);
  EXPECT_FALSE(strict.CheckLabels(2, {0, kIgnoredLabel}).ok());
  const Loss loss = *Loss::Create(kSoftmax, {2, 3}, 2, /*ignores=*/true);
  EXPECT_TRUE(loss.CheckLabels(2, {0, kIgnoredLabel}).ok());
  EXPECT_FALSE(loss.CheckLabels(2, {0, -2}).ok());
  EXPECT_EQ(
      Loss::Create(kSigmoid, {2, 1}, 2, /*ignores=*/true).status().message(),
      "loss SIGMOID_CROSS_ENTROPY does not take ignored labels");
}

TEST(LossTest, TheNumberOfLabelsMustFit) {
  const Loss loss = *Loss::Create(kSquare, {2, 3}, 2);
  EXPECT_TRUE(loss.CheckLabels(2, std::vector<float>(6)).ok());
  EXPECT_EQ(loss.CheckLabels(2, std::vector<float>(5)).message(),
            "a batch of 2 samples has 5 labels; the loss takes 3 a sample");
}

}  // namespace
}  // namespace syncline::worker
