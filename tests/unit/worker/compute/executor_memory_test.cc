// Goal: an executor takes the memory that its plan says, and shares it between
// values that are not needed at the same time. Method: arenas of models whose
// least size is known, and plans against the executors made of them.

#include <algorithm>
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

TEST(ExecutorTest, TheArenaHoldsLessThanEverythingAtOnce) {
  // Ten layers of 64 x 256 floats would be ten times 64 KiB each way.
  std::string body;
  std::string before = "x";
  for (int i = 0; i < 10; ++i) {
    const std::string after = i == 9 ? "y" : absl::StrCat("h", i);
    absl::StrAppend(&body, after, " = Add(", before, ", w_a)\n");
    before = after;
  }
  SeededExecutor trainer(
      MakeTrainingModel("(float[N,256] x, float[256] w_a) => (float[N,256] y)",
                        "", body),
      LossSpec::MEAN_SQUARED_ERROR, 64);
  const int64_t one = 64 * 256 * sizeof(float);
  EXPECT_GE(trainer.executor().arena_bytes(), 2 * one);
  EXPECT_LE(trainer.executor().arena_bytes(), 3 * one);
}

TEST(ExecutorTest, TheMemoryOfGradientsIsLentUntilTheyAreWritten) {
  SeededExecutor trainer(
      MakeTrainingModel("(float[N,64] x, float[64,64] w_a, "
                        "float[64,64] w_b, float[64,8] w_c) => "
                        "(float[N,8] y)",
                        "",
                        "a = MatMul(x, w_a)  h = Tanh(a)  "
                        "b = MatMul(h, w_b)  i = Tanh(b)  "
                        "y = MatMul(i, w_c)"),
      LossSpec::SOFTMAX_CROSS_ENTROPY, 16);
  // Of h, i and their gradients only that of h is there when the first layer's
  // gradient, which the others may lie in, is written.
  const int64_t hidden = 16 * 64 * sizeof(float);
  EXPECT_LE(trainer.executor().arena_bytes(), hidden);

  const Batch batch = trainer.MakeBatch(16);
  std::vector<std::vector<float>> reported(trainer.count());
  const auto step = [&](int64_t clock) {
    const auto result = trainer.executor().TrainStep(batch, clock, [&](int i) {
      const auto g = trainer.executor().gradient(i);
      reported[i].assign(g.begin(), g.end());
    });
    ASSERT_TRUE(result.ok()) << result.status();
  };
  step(0);
  const auto first = trainer.Gradients();
  EXPECT_EQ(first, reported);
  ASSERT_TRUE(trainer.executor().Evaluate(batch).ok());
  step(1);
  EXPECT_EQ(trainer.Gradients(), first);
  EXPECT_EQ(reported, first);
}

// Eight layers of 64 x 64, of whose gradients one or two are there at a time.
TEST(ExecutorTest, TransientGradientsAreTheSameInLessMemory) {
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
  SeededExecutor trainer(model, LossSpec::SOFTMAX_CROSS_ENTROPY, 4);
  Executor::Options options;
  options.loss.set_kind(LossSpec::SOFTMAX_CROSS_ENTROPY);
  options.batch_size = 4;
  options.transient_gradients = true;
  const auto plan = Executor::Plan(model.model, model.training, options);
  auto executor = Executor::Create(model.model, model.training, options);
  ASSERT_TRUE(plan.ok() && executor.ok()) << executor.status();
  const int64_t layer = 64 * 64 * sizeof(float);
  EXPECT_EQ(plan->gradient_bytes, 0);
  EXPECT_LT((*executor)->memory_bytes(), (8 + 3) * layer);
  EXPECT_EQ(plan->memory_bytes(), (*executor)->memory_bytes());
  for (int i = 0; i < trainer.count(); ++i) {
    const auto from = trainer.executor().parameter(i);
    std::copy(from.begin(), from.end(), (*executor)->parameter(i).begin());
  }
  for (const int64_t size : {4, 3, 4}) {
    const Batch some = trainer.MakeBatch(size);
    std::vector<std::vector<float>> reported(trainer.count());
    const auto result = (*executor)->TrainStep(some, 0, [&](int i) {
      const auto g = (*executor)->gradient(i);
      reported[i].assign(g.begin(), g.end());
    });
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_TRUE(trainer.executor().TrainStep(some, 0, [](int) {}).ok());
    EXPECT_EQ(reported, trainer.Gradients());
  }
}

TEST(ExecutorTest, TheArenaIsThatOfAPart) {
  const auto arena = [](int64_t batch_size, int64_t micro_batches) {
    return SeededExecutor(Mlp(), LossSpec::SOFTMAX_CROSS_ENTROPY, batch_size,
                          micro_batches)
        .executor()
        .arena_bytes();
  };
  EXPECT_EQ(arena(1024, 4), arena(256, 1));
  EXPECT_EQ(arena(1024, 3), arena(342, 1));  // the largest part
  EXPECT_LT(arena(256, 1), arena(1024, 1) / 3);
}

TEST(ExecutorTest, APlanIsWhatIsTaken) {
  const TrainingModel model = Mlp();
  Executor::Options options;
  options.loss.set_kind(LossSpec::SOFTMAX_CROSS_ENTROPY);
  options.batch_size = 30;
  for (const int64_t evaluated : {0, 7, 500}) {
    options.eval_batch_size = evaluated;
    options.micro_batches = 1 + evaluated % 5;
    const auto plan = Executor::Plan(model.model, model.training, options);
    const auto executor =
        Executor::Create(model.model, model.training, options);
    ASSERT_TRUE(plan.ok() && executor.ok()) << plan.status();
    EXPECT_EQ(plan->parameters, 20 + 5 + 15 + 3);
    EXPECT_EQ(plan->gradient_bytes, 128 + 64 + 64 + 64);  // in cache lines
    EXPECT_EQ(plan->training_arena_bytes, (*executor)->arena_bytes());
    EXPECT_EQ(plan->memory_bytes(), (*executor)->memory_bytes());
    EXPECT_EQ(plan->evaluation_arena_bytes > plan->training_arena_bytes,
              evaluated == 500);
    // A step computes the whole batch, in any number of parts.
    EXPECT_NEAR(plan->operators[0].forward_flops, 30 * (2 * (20 + 15) + 5 + 3),
                1e-6);
  }
}

TEST(ExecutorTest, WhatOnlyEvaluatesHasNoGradients) {
  const TrainingModel model = Mlp();
  SeededExecutor trainer(model, LossSpec::SOFTMAX_CROSS_ENTROPY, 5);
  Executor::Options options;
  options.loss.set_kind(LossSpec::SOFTMAX_CROSS_ENTROPY);
  options.batch_size = 5;
  options.eval_batch_size = 8;
  const auto trained = Executor::Plan(model.model, model.training, options);
  options.trains = false;
  const auto plan = Executor::Plan(model.model, model.training, options);
  const auto executor = Executor::Create(model.model, model.training, options);
  ASSERT_TRUE(trained.ok() && plan.ok() && executor.ok()) << plan.status();
  EXPECT_EQ(plan->gradient_bytes, 0);
  EXPECT_EQ(plan->training_arena_bytes, 0);
  EXPECT_EQ((*executor)->memory_bytes(), plan->memory_bytes());
  EXPECT_LT(plan->memory_bytes(), trained->memory_bytes());
  ASSERT_TRUE((*executor)->MakeResident(nullptr).ok());
  for (int i = 0; i < trainer.count(); ++i) {
    EXPECT_TRUE((*executor)->gradient(i).empty());
    const absl::Span<const float> values = trainer.executor().parameter(i);
    std::copy(values.begin(), values.end(), (*executor)->parameter(i).begin());
  }
  const Batch batch = trainer.MakeBatch(8);
  const auto want = trainer.executor().Evaluate(batch);
  const auto got = (*executor)->Evaluate(batch);
  ASSERT_TRUE(want.ok() && got.ok()) << got.status();
  EXPECT_EQ(got->loss_sum, want->loss_sum);
  EXPECT_EQ(got->scores, want->scores);
}

TEST(ExecutorTest, APlanNamesTensorsAndOperators) {
  const TrainingModel model = Mlp();
  Executor::Options options;
  options.loss.set_kind(LossSpec::SOFTMAX_CROSS_ENTROPY);
  options.batch_size = 8;
  const auto plan = Executor::Plan(model.model, model.training, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_GE(plan->tensors.size(), 3u);
  EXPECT_EQ(plan->tensors[0].name, "h");
  EXPECT_EQ(plan->tensors[0].what, "activation");
  EXPECT_EQ(plan->tensors[0].dims, (Dims{8, 5}));
  EXPECT_EQ(plan->tensors[0].bytes, 160);
  ASSERT_EQ(plan->operators.size(), 2u);
  EXPECT_EQ(plan->operators[0].op_type, "Gemm");
  EXPECT_EQ(plan->operators[0].nodes, 2);
  // The first layer's input has no gradient.
  EXPECT_EQ(plan->operators[0].backward_flops,
            8 * (2 * 20 + 5 + 2 * (2 * 15) + 3));
  EXPECT_EQ(plan->operators[1].op_type, "Tanh");
  EXPECT_EQ(plan->operators[1].forward_flops, 40);
}

}  // namespace
}  // namespace syncline::worker
