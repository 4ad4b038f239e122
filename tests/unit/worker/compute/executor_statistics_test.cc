// Goal: the running statistics of BatchNormalization are those of the whole
// batch, also of a batch in parts and of one that several workers share.
// Method: batches with a known mean and variance; halves of a batch on two
// threads against the whole batch.

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/dtype.h"
#include "tests/testing/thread_folds.h"
#include "tests/testing/training_model.h"
#include "tests/unit/worker/compute/executor_fixture.h"
#include "worker/compute/executor.h"

namespace syncline::worker {
namespace {

using testing::MakeTrainingModel;
using testing::ThreadFolds;
using testing::TrainingModel;

TrainingModel NormalizedColumn() {
  return MakeTrainingModel(
      "(float[N,1] x, float[1] w_s, float[1] w_b, float[1] w_running_mean, "
      "float[1] w_running_variance) => (float[N,1] y)",
      "",
      "y = BatchNormalization <epsilon = 0.0> (x, w_s, w_b, w_running_mean, "
      "w_running_variance)");
}

// The batch's mean and variance, times its samples, are handed out; evaluation
// reads what is stored.
TEST(ExecutorTest, RunningStatisticsFollowTheBatches) {
  SeededExecutor t(NormalizedColumn(), LossSpec::MEAN_SQUARED_ERROR, 4);
  const float values[] = {3, 1, 10, 4};  // scale, bias, mean, variance
  for (int i = 0; i < 4; ++i) t.executor().parameter(i)[0] = values[i];
  Batch batch = t.MakeBatch(4);
  batch.feeds[0] = {1, 3, 5, 7};
  t.Step(batch);
  EXPECT_FLOAT_EQ(t.executor().gradient(2)[0], 4 * 4);
  EXPECT_FLOAT_EQ(t.executor().gradient(3)[0], 4 * 5);
  const auto evaluation = t.executor().Evaluate(batch);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  for (int i = 0; i < 4; ++i) {
    EXPECT_FLOAT_EQ(evaluation->scores[i],
                    (batch.feeds[0][i] - 10) / 2 * 3 + 1);
  }
}

// A batch of one sample hands out the running statistics themselves, and its
// scores are those of an evaluation.
TEST(ExecutorTest, ALastBatchOfOneSampleLeavesRunningStatisticsAsTheyAre) {
  SeededExecutor t(NormalizedColumn(), LossSpec::MEAN_SQUARED_ERROR, 4);
  const float values[] = {3, 1, 10, 4};  // scale, bias, mean, variance
  for (int i = 0; i < 4; ++i) t.executor().parameter(i)[0] = values[i];
  Batch one = t.MakeBatch(1);
  one.feeds[0] = {7};
  EXPECT_EQ(t.Step(one), t.executor().Evaluate(one)->loss_sum);
  EXPECT_FLOAT_EQ(t.executor().gradient(2)[0], 10);
  EXPECT_FLOAT_EQ(t.executor().gradient(3)[0], 4);
  t.ExpectGradientsAreDerivatives(1);
}

TEST(ExecutorTest, BatchesWithoutAVarianceAreRefused) {
  const TrainingModel m = NormalizedColumn();
  Executor::Options options;
  options.loss.set_kind(LossSpec::MEAN_SQUARED_ERROR);
  options.batch_size = options.micro_batches = 4;
  // With 3 the parts have 1, 1 and 2 samples: those of 1 are no short batch.
  for (const int64_t parts : {4, 3}) {
    SCOPED_TRACE(parts);
    options.micro_batches = parts;
    const std::string refusal =
        "node \"BatchNormalization#0\" (BatchNormalization): a channel has 1 "
        "element in a training step, and so no variance; raise batch_size or "
        "lower micro_batches, or freeze the running mean and variance";
    ExpectError(Executor::Plan(m.model, m.training, options),
                absl::StatusCode::kInvalidArgument, refusal);
    ExpectError(Executor::Create(m.model, m.training, options),
                absl::StatusCode::kInvalidArgument, refusal);
  }
  options.micro_batches = 2;
  EXPECT_TRUE(Executor::Plan(m.model, m.training, options).ok());
}

// Parts have statistics of their own; their mean over all samples is handed
// out, whatever runs again.
TEST(ExecutorTest, StatisticsOfPartsAreWeighedByTheirSamples) {
  for (const int segments : {1, 2}) {
    const TrainingModel m = MakeTrainingModel(
        "(float[N,1] x, float[1] w_s, float[1] w_b, float[1] w_running_mean, "
        "float[1] w_running_variance, float[1] w_a) => (float[N,1] y)",
        "",
        "t = Mul(x, w_a)\n u = Tanh(t)\n"
        "n = BatchNormalization (x, w_s, w_b, w_running_mean, "
        "w_running_variance)\n s = Sigmoid(n)\n v = Mul(s, w_a)\n"
        "y = Add(u, v)");
    SeededExecutor t(m, LossSpec::MEAN_SQUARED_ERROR, 5, /*micro_batches=*/2,
                     segments);
    Batch batch = t.MakeBatch(5);
    batch.feeds[0] = {1, 3, 4, 8, 6};  // parts {1, 3} and {4, 8, 6}
    t.Step(batch);
    EXPECT_FLOAT_EQ(t.executor().gradient(2)[0], 2 * 2 + 3 * 6);
    EXPECT_FLOAT_EQ(t.executor().gradient(3)[0], 2 * 1 + 3 * (8.0f / 3));
  }
}

// 10 samples in 4 parts have 2, 3, 2 and 3: each has a variance of its own. A
// last batch of 5 has 1, 1, 1 and 2: those of one sample have none, and keep
// the running ones as they are.
TEST(ExecutorTest, UnevenPartsOfAFullBatchAreNoShortOnes) {
  SeededExecutor t(NormalizedColumn(), LossSpec::MEAN_SQUARED_ERROR, 10,
                   /*micro_batches=*/4);
  const float values[] = {3, 1, 10, 4};  // scale, bias, mean, variance
  for (int i = 0; i < 4; ++i) t.executor().parameter(i)[0] = values[i];
  Batch full = t.MakeBatch(10);
  full.feeds[0] = {1, 3, 1, 1, 4, 5, 9, 2, 2, 5};
  t.Step(full);
  EXPECT_FLOAT_EQ(t.executor().gradient(2)[0], 2 * 2 + 3 * 2 + 2 * 7 + 3 * 3);
  EXPECT_FLOAT_EQ(t.executor().gradient(3)[0], 2 * 1 + 3 * 2 + 2 * 4 + 3 * 2);
  Batch last = t.MakeBatch(5);
  last.feeds[0] = {1, 3, 1, 2, 6};
  t.Step(last);
  EXPECT_FLOAT_EQ(t.executor().gradient(2)[0], 3 * 10 + 2 * 4);
  EXPECT_FLOAT_EQ(t.executor().gradient(3)[0], 3 * 4 + 2 * 4);
}

TrainingModel TwiceNormalized() {
  return MakeTrainingModel(
      "(float[N,3] x, float[3,4] w_a, float[4] w_s, float[4] w_b, "
      "float[4] w_running_m, float[4] w_running_v, float[4,2] w_c, "
      "float[2] w_t, float[2] w_d, float[2] w_running_n, "
      "float[2] w_running_w) => (float[N,2] y)",
      "",
      "h = MatMul(x, w_a)\n"
      "n = BatchNormalization(h, w_s, w_b, w_running_m, w_running_v)\n"
      "r = Tanh(n)\n p = MatMul(r, w_c)\n"
      "q = BatchNormalization(p, w_t, w_d, w_running_n, w_running_w)\n"
      "y = Sigmoid(q)");
}

// Each of `samples` of `batch`, in this order.
Batch Pick(const Batch& batch, const std::vector<int64_t>& samples) {
  Batch picked;
  picked.size = static_cast<int64_t>(samples.size());
  picked.label_width = batch.label_width;
  picked.feeds.resize(batch.feeds.size());
  for (const int64_t sample : samples) {
    for (size_t f = 0; f < batch.feeds.size(); ++f) {
      const size_t width = batch.feeds[f].size() / batch.size;
      const auto first = batch.feeds[f].begin() + sample * width;
      picked.feeds[f].insert(picked.feeds[f].end(), first, first + width);
    }
    const auto first = batch.labels.begin() + sample * batch.label_width;
    picked.labels.insert(picked.labels.end(), first, first + batch.label_width);
  }
  return picked;
}

// A step of the whole batch, and of its halves on two threads that fold their
// statistics. `tolerance`: of what is off, as a part of a number or of 1.
void ExpectHalvesAreTheWhole(int64_t parts, int segments, DType type,
                             double tolerance) {
  const TrainingModel m = TwiceNormalized();
  constexpr auto kLoss = LossSpec::MEAN_SQUARED_ERROR;
  SeededExecutor whole(m, kLoss, 8, parts, 1, 1, nullptr, nullptr, type);
  const Batch batch = whole.MakeBatch(8);
  const double loss = whole.Step(batch);
  ThreadFolds folds(2);
  SeededExecutor even(m, kLoss, 4, parts, segments, 1, folds.of(0), nullptr,
                      type);
  SeededExecutor odd(m, kLoss, 4, parts, segments, 1, folds.of(1), nullptr,
                     type);
  double even_loss = 0;
  std::thread other([&] { even_loss = even.Step(Pick(batch, {0, 1, 4, 5})); });
  const double odd_loss = odd.Step(Pick(batch, {2, 3, 6, 7}));
  other.join();
  EXPECT_NEAR(even_loss + odd_loss, loss, tolerance * loss);
  EXPECT_EQ(folds.count(), 4 * parts);
  const auto want = whole.Gradients();
  const auto a = even.Gradients();
  const auto b = odd.Gradients();
  for (int i = 0; i < whole.count(); ++i) {
    for (size_t j = 0; j < want[i].size(); ++j) {
      EXPECT_NEAR(a[i][j] + b[i][j], want[i][j],
                  tolerance * std::max(1.0f, std::fabs(want[i][j])))
          << whole.name(i) << "[" << j << "]";
    }
  }
}

// Part k of the whole batch is part k of both halves; what runs again does not
// fold again.
TEST(ExecutorTest, FoldedStatisticsAreThoseOfTheWholeBatch) {
  for (const int64_t parts : {1, 2}) {
    for (const int segments : {1, 3}) {
      SCOPED_TRACE(absl::StrCat(parts, " parts, ", segments, " segments"));
      ExpectHalvesAreTheWhole(parts, segments, DType::kFloat32, 2e-5);
    }
  }
}

// A number close to the middle between two of 16 bits may be rounded up in the
// halves and down in the whole, so they differ by a few roundings.
TEST(ExecutorTest, StatisticsOf16BitsFoldToThoseOfTheWholeBatch) {
  for (const int64_t parts : {1, 2}) {
    SCOPED_TRACE(absl::StrCat(parts, " parts"));
    ExpectHalvesAreTheWhole(parts, 1, DType::kBfloat16, 4.0 / 256);
    ExpectHalvesAreTheWhole(parts, 1, DType::kFloat16, 4.0 / 2048);
  }
}

TEST(ExecutorTest, OnlyTheStepItselfFoldsStatistics) {
  ThreadFolds folds(1);
  SeededExecutor t(TwiceNormalized(), LossSpec::MEAN_SQUARED_ERROR, 4, 1, 1, 1,
                   folds.of(0));
  for (const int variance : {4, 9}) {
    for (float& v : t.executor().parameter(variance)) v = 1;
  }
  Batch batch = t.MakeBatch(4);
  ASSERT_TRUE(t.executor().Evaluate(batch).ok());
  EXPECT_EQ(folds.count(), 0);
  // The loss overflows, and the first node that is not finite is looked for.
  batch.labels[0] = std::numeric_limits<float>::max();
  ExpectError(t.executor().TrainStep(batch, 0, Ignore),
              absl::StatusCode::kFailedPrecondition,
              "step at clock 0: the loss is inf: every node's output is "
              "finite, but the loss overflows");
  EXPECT_EQ(folds.count(), 2);
}

// The reduction of the statistics shows whether the other workers' parts have
// one element too.
TEST(ExecutorTest, PartsOfOneElementMayFoldTheirStatistics) {
  ThreadFolds folds(1);
  SeededExecutor t(NormalizedColumn(), LossSpec::MEAN_SQUARED_ERROR, 4, 4, 1, 1,
                   folds.of(0));
  t.executor().parameter(3)[0] = 1;  // the variance
  t.Step(t.MakeBatch(4));
  EXPECT_EQ(folds.count(), 4);
}

}  // namespace
}  // namespace syncline::worker
