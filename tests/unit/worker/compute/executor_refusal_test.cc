// Goal: an executor refuses what it cannot compute, and names the sample, node,
// input or parameter in the batch's own numbers. Method: batches, labels and
// parameters with one fault each, and the text of the error.

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/training_model.h"
#include "tests/unit/worker/compute/executor_fixture.h"
#include "worker/compute/executor.h"

namespace syncline::worker {
namespace {

using testing::MakeTrainingModel;
using testing::TrainingModel;

TEST(ExecutorTest, LabelsOutsideTheClassesAreNamed) {
  SeededExecutor trainer(Mlp(), LossSpec::SOFTMAX_CROSS_ENTROPY, 4);
  for (const float bad : {3.0f, -1.0f, 0.5f, kNan}) {
    Batch batch = trainer.MakeBatch(4);
    batch.labels[2] = bad;
    const std::string message =
        absl::StrCat("label ", bad,
                     " of sample 2 in the batch is not one of the 3 classes 0 "
                     "to 2");
    ExpectError(trainer.executor().TrainStep(batch, 0, Ignore),
                absl::StatusCode::kInvalidArgument, message);
    ExpectError(trainer.executor().Evaluate(batch),
                absl::StatusCode::kInvalidArgument, message);
  }
}

TEST(ExecutorTest, WhatAnOperatorCountsInAPartIsNamedWithThePart) {
  const TrainingModel m = MakeTrainingModel(
      "(float[N,2] x, int64[N,1] i, float[1] w_a) => (float[N,1] y)", "",
      "g = GatherElements <axis = 1> (x, i)\n y = Mul(g, w_a)");
  Batch batch;
  batch.size = 4;
  batch.feeds = {std::vector<float>(8, 1), {}};
  batch.int_feeds = {{}, {0, 1, 0, 2}};
  batch.labels.assign(4, 0);
  batch.label_width = 1;
  const std::string node = "node \"GatherElements#0\" (GatherElements)";
  const std::string problem = "is outside its dimension";
  SeededExecutor whole(m, LossSpec::MEAN_SQUARED_ERROR, 4);
  ExpectError(whole.executor().TrainStep(batch, 0, Ignore),
              absl::StatusCode::kInvalidArgument,
              absl::StrCat(node, ": index 2, number 3, ", problem));
  SeededExecutor parts(m, LossSpec::MEAN_SQUARED_ERROR, 4, /*micro_batches=*/2);
  ExpectError(parts.executor().TrainStep(batch, 0, Ignore),
              absl::StatusCode::kInvalidArgument,
              absl::StrCat(node, ", in the part of samples 2 to 3 of the batch",
                           ": index 2, number 1, ", problem));
}

TEST(ExecutorTest, BatchesThatDoNotFitAreRefused) {
  SeededExecutor trainer(Mlp(), LossSpec::SOFTMAX_CROSS_ENTROPY, 4);
  const auto step = [&](const Batch& batch) {
    return trainer.executor().TrainStep(batch, 0, Ignore);
  };
  ExpectError(step(trainer.MakeBatch(5)), absl::StatusCode::kInvalidArgument,
              "a batch of 5 samples; this executor takes 1 to 4");
  ExpectError(step(Batch()), absl::StatusCode::kInvalidArgument,
              "a batch of 0 samples; this executor takes 1 to 4");
  Batch batch = trainer.MakeBatch(2);
  batch.feeds[0].pop_back();
  ExpectError(step(batch), absl::StatusCode::kInvalidArgument,
              "graph input \"x\" takes 8 numbers for 2 samples, but is fed 7");
  batch = trainer.MakeBatch(2);
  batch.labels.push_back(0);
  ExpectError(step(batch), absl::StatusCode::kInvalidArgument,
              "a batch of 2 samples has 3 labels; the loss takes 1 a sample");
}

TEST(ExecutorTest, TheFirstNodeThatIsNotFiniteIsNamed) {
  SeededExecutor trainer(
      MakeTrainingModel("(float[N,2] x, float[2] w_a) => (float[N,2] y)", "",
                        "a = Mul(x, w_a)\n b = Mul(a, a)\n"
                        "y = Add(b, b)"),
      LossSpec::MEAN_SQUARED_ERROR, 2);
  Batch batch = trainer.MakeBatch(2);
  batch.feeds[0] = {1, 1, 1, 1};
  trainer.executor().parameter(0)[1] = 1e30f;
  bool called = false;
  const auto result =
      trainer.executor().TrainStep(batch, 12, [&](int) { called = true; });
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(result.status().message(),
            "step at clock 12: the loss is inf: node \"Mul#1\" (Mul) output "
            "\"b\" is inf for sample 0 in the batch");
  EXPECT_FALSE(called);
}

TEST(ExecutorTest, SamplesOfPartsAreNamedAsThoseOfTheBatch) {
  SeededExecutor trainer(Mlp(), LossSpec::SOFTMAX_CROSS_ENTROPY, 5,
                         /*micro_batches=*/2);
  Batch batch = trainer.MakeBatch(5);
  batch.feeds[0][4 * 4 + 1] = kNan;
  bool called = false;
  ExpectError(
      trainer.executor().TrainStep(batch, 0, [&](int) { called = true; }),
      absl::StatusCode::kFailedPrecondition,
      "step at clock 0: the loss is nan: graph input \"x\" is nan for "
      "sample 4 in the batch");
  EXPECT_FALSE(called);
  batch.labels[3] = 9;
  ExpectError(trainer.executor().TrainStep(batch, 0, Ignore),
              absl::StatusCode::kInvalidArgument,
              "label 9 of sample 3 in the batch is not one of the 3 classes 0 "
              "to 2");
}

TEST(ExecutorTest, NotANumberInTheDataIsNamedAsSuch) {
  SeededExecutor trainer(Mlp(), LossSpec::SOFTMAX_CROSS_ENTROPY, 4);
  Batch batch = trainer.MakeBatch(4);
  batch.feeds[0][9] = kNan;
  ExpectError(trainer.executor().TrainStep(batch, 0, Ignore),
              absl::StatusCode::kFailedPrecondition,
              "step at clock 0: the loss is nan: graph input \"x\" is nan for "
              "sample 2 in the batch");
  const auto evaluation = trainer.executor().Evaluate(batch);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  EXPECT_TRUE(std::isnan(evaluation->loss_sum));
  EXPECT_EQ(trainer.executor().WhyNotFinite(*evaluation),
            absl::FailedPreconditionError(
                "evaluation: the loss is nan: graph input \"x\" is nan for "
                "sample 2 in the batch"));
}

TEST(ExecutorTest, AParameterThatIsNotFiniteIsNamed) {
  SeededExecutor trainer(Mlp(), LossSpec::SOFTMAX_CROSS_ENTROPY, 4);
  trainer.executor().parameter(1)[2] = kNan;
  ExpectError(trainer.executor().TrainStep(trainer.MakeBatch(4), 0, Ignore),
              absl::StatusCode::kFailedPrecondition,
              "step at clock 0: the loss is nan: parameter \"w_b\" is nan");
}

TEST(ExecutorTest, ANodeThatCannotBeComputedIsNamedAtCreation) {
  const TrainingModel model = MakeTrainingModel(
      "(float[N,2] x, float[2] w_a) => (float[N,2] y)", "float ratio = {1.5}",
      "a = Mul(x, w_a)\n y = Dropout(a, ratio)");
  Executor::Options options;
  options.loss.set_kind(LossSpec::MEAN_SQUARED_ERROR);
  options.batch_size = 2;
  ExpectError(Executor::Create(model.model, model.training, options),
              absl::StatusCode::kInvalidArgument,
              "node \"Dropout#1\" (Dropout): ratio is 1.5; it must be in [0, "
              "1)");
}

TEST(ExecutorTest, AnInputThatNothingFeedsIsNamed) {
  TrainingModel model = Mlp();
  model.training.feeds = {};
  Executor::Options options;
  options.loss.set_kind(LossSpec::SOFTMAX_CROSS_ENTROPY);
  options.batch_size = 2;
  ExpectError(Executor::Create(model.model, model.training, options),
              absl::StatusCode::kInvalidArgument,
              "\"x\" has no value: nothing feeds it");
}

}  // namespace
}  // namespace syncline::worker
