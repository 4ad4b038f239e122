// Goal: steps whose parameters are gathered for each use have the bits of steps
// that hold them, in the memory of two units, also where batches are run in
// parts. Method: executors of both kinds over the same models and batches;
// whatever no operator may read is NaN.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/copy_gatherer.h"
#include "tests/testing/training_model.h"
#include "tests/unit/worker/compute/executor_fixture.h"
#include "worker/compute/executor.h"

namespace syncline::worker {
namespace {

using testing::CopyGatherer;
using testing::MakeTrainingModel;
using testing::TrainingModel;

Executor::Options Gathering(LossSpec::Kind loss, int64_t unit_bytes) {
  Executor::Options options;
  options.loss.set_kind(loss);
  options.batch_size = 6;
  options.eval_batch_size = 9;
  options.seed = 17;
  options.transient_gradients = true;
  options.gather_unit_bytes = unit_bytes;
  return options;
}

std::vector<std::vector<float>> ValuesOf(SeededExecutor& trainer) {
  std::vector<std::vector<float>> values;
  for (int i = 0; i < trainer.count(); ++i) {
    const auto from = trainer.executor().parameter(i);
    values.emplace_back(from.begin(), from.end());
  }
  return values;
}

void ExpectSameBits(const TrainingModel& model, LossSpec::Kind loss,
                    int64_t micro_batches, int64_t batch_max,
                    absl::Span<const int64_t> sizes) {
  SeededExecutor trainer(model, loss, 6, micro_batches,
                         /*recompute_segments=*/1, /*threads=*/1,
                         /*statistics=*/nullptr, /*device=*/nullptr,
                         DType::kFloat32, batch_max);
  for (int i = 0; i < trainer.count(); ++i) {
    if (trainer.name(i) != "w_running_variance") continue;
    for (float& v : trainer.executor().parameter(i)) v = std::abs(v) + 0.5f;
  }
  for (const int64_t unit_bytes : {1, 192, 1 << 20}) {
    SCOPED_TRACE(unit_bytes);
    Executor::Options options = Gathering(loss, unit_bytes);
    options.micro_batches = micro_batches;
    options.batch_max = batch_max;
    const auto plan = Executor::Plan(model.model, model.training, options);
    auto executor = Executor::Create(model.model, model.training, options);
    ASSERT_TRUE(plan.ok() && executor.ok()) << executor.status();
    EXPECT_EQ(plan->memory_bytes(), (*executor)->memory_bytes());
    ASSERT_TRUE((*executor)->MakeResident(nullptr).ok());
    CopyGatherer gatherer(executor->get(), ValuesOf(trainer));
    (*executor)->ReleaseParameters();
    for (const int64_t size : sizes) {
      SCOPED_TRACE(size);
      const Batch batch = trainer.MakeBatch(size);
      std::vector<std::vector<float>> reported(trainer.count());
      const auto got = (*executor)->TrainStep(batch, 3, [&](int i) {
        const auto g = (*executor)->gradient(i);
        reported[i].assign(g.begin(), g.end());
      });
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(got->loss_sum, trainer.Step(batch));
      EXPECT_EQ(reported, trainer.Gradients());
    }
    // Evaluations read what is written between steps.
    const std::vector<std::vector<float>> values = ValuesOf(trainer);
    for (int i = 0; i < trainer.count(); ++i) {
      std::copy(values[i].begin(), values[i].end(),
                (*executor)->parameter(i).begin());
    }
    const Batch batch = trainer.MakeBatch(9);
    const auto want = trainer.executor().Evaluate(batch);
    const auto got = (*executor)->Evaluate(batch);
    ASSERT_TRUE(want.ok() && got.ok()) << got.status();
    EXPECT_EQ(got->loss_sum, want->loss_sum);
    EXPECT_EQ(got->scores, want->scores);
  }
}

// Whole batches; two parts of three samples, of which a batch of one has one;
// parts of two, and batches of more than three of them.
void ExpectSameBits(const TrainingModel& model, LossSpec::Kind loss) {
  ExpectSameBits(model, loss, 1, 0, {6, 4, 6});
  ExpectSameBits(model, loss, 2, 0, {6, 5, 1, 6});
  ExpectSameBits(model, loss, 3, 11, {6, 11, 7, 2, 11});
}

TEST(ExecutorGatherTest, APerceptronHasTheSameBits) {
  ExpectSameBits(Mlp(), LossSpec::SOFTMAX_CROSS_ENTROPY);
}

TEST(ExecutorGatherTest, AConvolutionWithRunningMeansHasTheSameBits) {
  ExpectSameBits(
      MakeTrainingModel(
          "(float[N,2,5,5] x, float[4,2,3,3] w_k, float[4] w_s, float[4] w_b, "
          "float[4] w_running_mean, float[4] w_running_variance, "
          "float[100,3] w_o) => (float[N,3] y)",
          "",
          "c = Conv <pads = [1, 1, 1, 1]> (x, w_k)\n"
          "n = BatchNormalization (c, w_s, w_b, w_running_mean, "
          "w_running_variance)\n"
          "r = Relu(n)\nf = Flatten(r)\ny = MatMul(f, w_o)"),
      LossSpec::SOFTMAX_CROSS_ENTROPY);
}

// A weight that two operators read, one of them through a view, and one that
// leads to no gradient.
TEST(ExecutorGatherTest, SharedWeightsAndViewsHaveTheSameBits) {
  ExpectSameBits(
      MakeTrainingModel("(float[N,4] x, float[4,4] w_a, float[4,4] w_b, "
                        "float[16] w_flat, float[4] w_unused) => "
                        "(float[N,4] y)",
                        "int64[2] square = {4, 4}",
                        "v = Reshape(w_flat, square)\n"
                        "t = Transpose(w_a)\n"
                        "a = MatMul(x, w_a)\nh = Tanh(a)\n"
                        "b = MatMul(h, v)\ni = Tanh(b)\n"
                        "c = MatMul(i, w_b)\nj = Gelu(c)\n"
                        "d = MatMul(j, t)\nk = Tanh(d)\n"
                        "y = MatMul(k, v)",
                        20),
      LossSpec::SOFTMAX_CROSS_ENTROPY);
}

// Eight layers of 16 KiB, two of which are there at a time.
TEST(ExecutorGatherTest, ThePoolHoldsTwoUnits) {
  std::string signature = "(float[N,64] x";
  std::string body;
  std::string before = "x";
  for (int i = 0; i < 8; ++i) {
    absl::StrAppend(&signature, ", float[64,64] w_", i);
    absl::StrAppend(&body, "a", i, " = MatMul(", before, ", w_", i, ")  h", i,
                    " = Tanh(a", i, ")  ");
    before = absl::StrCat("h", i);
  }
  absl::StrAppend(&body, "y = Identity(", before, ")");
  const TrainingModel model = MakeTrainingModel(
      absl::StrCat(signature, ") => (float[N,64] y)"), "", body);
  Executor::Options options =
      Gathering(LossSpec::SOFTMAX_CROSS_ENTROPY, /*unit_bytes=*/64 * 64 * 4);
  options.batch_size = 4;
  auto executor = Executor::Create(model.model, model.training, options);
  const auto plan = Executor::Plan(model.model, model.training, options);
  ASSERT_TRUE(plan.ok() && executor.ok()) << executor.status();
  const int64_t layer = 64 * 64 * sizeof(float);
  EXPECT_EQ(plan->parameter_bytes, 2 * layer);
  EXPECT_EQ(plan->memory_bytes(), (*executor)->memory_bytes());
  EXPECT_LT((*executor)->memory_bytes(), (2 + 3) * layer);
  ExpectSameBits(model, LossSpec::SOFTMAX_CROSS_ENTROPY);
}

TEST(ExecutorGatherTest, TheNextUnitComesWhileOneIsInUse) {
  const TrainingModel model = Mlp();
  SeededExecutor trainer(model, LossSpec::SOFTMAX_CROSS_ENTROPY, 6);
  auto executor =
      Executor::Create(model.model, model.training,
                       Gathering(LossSpec::SOFTMAX_CROSS_ENTROPY, 1));
  ASSERT_TRUE(executor.ok()) << executor.status();
  // The first layer, the second in forward and backward; the first one's input
  // has no gradient, so nothing reads its weights again.
  EXPECT_EQ(std::vector<std::vector<int>>((*executor)->gather_units().begin(),
                                          (*executor)->gather_units().end()),
            (std::vector<std::vector<int>>{{0, 1}, {2, 3}}));
  CopyGatherer gatherer(executor->get(), ValuesOf(trainer));
  const Batch batch = trainer.MakeBatch(6);
  ASSERT_TRUE((*executor)->TrainStep(batch, 0, Ignore).ok());
  EXPECT_EQ(gatherer.calls(), "B0 A0 B1 R0 A1 R1");
  gatherer.Forget();
  gatherer.FailAt(1);
  ExpectError((*executor)->TrainStep(batch, 1, Ignore),
              absl::StatusCode::kUnavailable, "rank 1 is gone");
  EXPECT_EQ(gatherer.calls(), "B0 A0 B1 R0 A1");
}

// Each part comes to all units again; the last ones of a batch of fewer parts
// are not begun.
TEST(ExecutorGatherTest, PartsOfABatchHaveUnitsOfTheirOwn) {
  const TrainingModel model = Mlp();
  SeededExecutor trainer(model, LossSpec::SOFTMAX_CROSS_ENTROPY, 6);
  Executor::Options options = Gathering(LossSpec::SOFTMAX_CROSS_ENTROPY, 1);
  options.micro_batches = 3;
  auto executor = Executor::Create(model.model, model.training, options);
  ASSERT_TRUE(executor.ok()) << executor.status();
  EXPECT_EQ(std::vector<std::vector<int>>((*executor)->gather_units().begin(),
                                          (*executor)->gather_units().end()),
            (std::vector<std::vector<int>>{
                {0, 1}, {2, 3}, {0, 1}, {2, 3}, {0, 1}, {2, 3}}));
  CopyGatherer gatherer(executor->get(), ValuesOf(trainer));
  ASSERT_TRUE((*executor)->TrainStep(trainer.MakeBatch(6), 0, Ignore).ok());
  EXPECT_EQ(gatherer.calls(),
            "B0 A0 B1 R0 A1 R1 B2 A2 B3 R2 A3 R3 B4 A4 B5 R4 A5 R5");
  gatherer.Forget();
  ASSERT_TRUE((*executor)->TrainStep(trainer.MakeBatch(2), 1, Ignore).ok());
  EXPECT_EQ(gatherer.calls(), "B0 A0 B1 R0 A1 R1 B2 A2 B3 R2 A3 R3");
}

TEST(ExecutorGatherTest, ALossThatIsNotFiniteEndsTheStep) {
  const TrainingModel model = Mlp();
  SeededExecutor trainer(model, LossSpec::SOFTMAX_CROSS_ENTROPY, 6);
  auto executor =
      Executor::Create(model.model, model.training,
                       Gathering(LossSpec::SOFTMAX_CROSS_ENTROPY, 1));
  ASSERT_TRUE(executor.ok()) << executor.status();
  std::vector<std::vector<float>> values = ValuesOf(trainer);
  values[2][0] = kNan;
  CopyGatherer gatherer(executor->get(), values);
  ExpectError((*executor)->TrainStep(trainer.MakeBatch(6), 7, Ignore),
              absl::StatusCode::kFailedPrecondition,
              "step at clock 7: the loss is nan: by SHARDED, stage 3, the "
              "values are not there to look for the node; sharding { stage: 2 "
              "} names it");
}

TEST(ExecutorGatherTest, WhatGoesWithoutItIsRefusedByName) {
  const TrainingModel model = Mlp();
  const auto refusal = [&](auto change) {
    Executor::Options options = Gathering(LossSpec::SOFTMAX_CROSS_ENTROPY, 64);
    change(&options);
    return Executor::Plan(model.model, model.training, options);
  };
  const std::string what =
      "values that are gathered for each use (SHARDED, stage 3) are not built "
      "for ";
  ExpectError(refusal([](Executor::Options* o) { o->recompute_segments = 2; }),
              absl::StatusCode::kInvalidArgument,
              what +
                  "activations that are computed again; use sharding { stage: "
                  "2 } or training { recompute_segments: 1 }");
  ExpectError(
      refusal([](Executor::Options* o) { o->precision = DType::kBfloat16; }),
      absl::StatusCode::kInvalidArgument,
      what +
          "16-bit precision; use sharding { stage: 2 } or precision: FLOAT32");
}

}  // namespace
}  // namespace syncline::worker
