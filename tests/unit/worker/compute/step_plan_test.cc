// Goal: once a batch size has been planned, steps allocate nothing of ours.
// Method: operator new counted over steps of a model with every kind of place
// (feeds, views, in-place outputs, workspaces, fan-out), switching between two
// training sizes and evaluation. Calls from shared libraries are not counted:
// oneDNN allocates a little on every matrix product.

#include "worker/compute/step_plan.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <new>
#include <tuple>

#include "tests/testing/training_model.h"

// Where the linker put this program's own code.
// NOLINTNEXTLINE(bugprone-reserved-identifier): the linker's
extern const char __executable_start;
extern const char etext;

namespace {

int64_t allocations = 0;  // one thread runs

bool IsOurs(const void* caller) {
  return caller >= &__executable_start && caller < &etext;
}

}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) {
  if (IsOurs(__builtin_return_address(0))) ++allocations;
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  std::abort();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept {
  std::free(p);
}

namespace syncline::worker {
namespace {

Batch MakeBatch(int64_t size) {
  Batch batch;
  batch.size = size;
  batch.feeds = {std::vector<float>(size * 8, 0.5f)};
  batch.labels.assign(size, 1.0f);
  return batch;
}

// Parts of a batch, and segments that are recomputed; the precision.
class StepPlanTest : public ::testing::TestWithParam<std::tuple<int, DType>> {};

TEST_P(StepPlanTest, StepsAllocateNothing) {
  const auto model = testing::MakeTrainingModel(
      "(float[N,2,4] x, float[8,16] w_a, float[16] w_b, float[16,3] w_c) => "
      "(float[N,3] y)",
      "float ratio = {0.5}",
      "f = Flatten(x)\n h = Gemm(f, w_a, w_b)\n r = Relu(h)\n s = Tanh(r)\n"
      "t = Add(r, s)\n d = Dropout(t, ratio)\n y = MatMul(d, w_c)");
  Executor::Options options;
  options.loss.set_kind(LossSpec::SOFTMAX_CROSS_ENTROPY);
  options.batch_size = 8;
  options.micro_batches = std::get<0>(GetParam());
  options.recompute_segments = std::get<0>(GetParam());
  options.precision = std::get<1>(GetParam());
  options.eval_batch_size = 16;
  auto executor = Executor::Create(model.model, model.training, options);
  ASSERT_TRUE(executor.ok()) << executor.status();
  for (int i = 0; i < 3; ++i) {
    for (float& w : (*executor)->parameter(i)) w = 0.01f;
  }
  const Batch full = MakeBatch(8);
  const Batch last = MakeBatch(5);
  const Batch eval = MakeBatch(16);
  const auto run = [&] {
    bool ok = (*executor)->TrainStep(full, 0, [](int) {}).ok();
    ok &= (*executor)->TrainStep(last, 1, [](int) {}).ok();
    ok &= (*executor)->Evaluate(eval).ok();
    return ok;
  };
  ASSERT_TRUE(run());  // plans the short batch
  const int64_t before = allocations;
  ASSERT_TRUE(run());
  ASSERT_TRUE(run());
  EXPECT_EQ(allocations - before, 0);
  EXPECT_GT(before, 0);  // the counter counts
}

TEST(StepPlanProblemsTest, WhatOperatorsRefuseComesAtOnce) {
  const auto model = testing::MakeTrainingModel(
      "(float[N,3] x, float[3,3] w_a) => (float[N,3] y)",
      "float[3] low = {0, 0, 0}",
      "a = Mod(x, x)\n b = MatMul(a, w_a)\n y = Clip(b, low)");
  Executor::Options options;
  options.loss.set_kind(LossSpec::SOFTMAX_CROSS_ENTROPY);
  options.batch_size = 8;
  const auto executor = Executor::Create(model.model, model.training, options);
  const std::string message(executor.status().message());
  EXPECT_THAT(message, ::testing::HasSubstr("(Mod): fmod is 0"));
  EXPECT_THAT(message, ::testing::HasSubstr("(Clip): min is [3]"));
}

INSTANTIATE_TEST_SUITE_P(
    Parts, StepPlanTest,
    ::testing::Combine(::testing::Values(1, 3),
                       ::testing::Values(DType::kFloat32, DType::kBfloat16)));

}  // namespace
}  // namespace syncline::worker
