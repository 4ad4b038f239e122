// Goal: a whole training step runs on a GPU's kernels: plan, transfers,
// forward, loss, backward, evaluation. Method: steps of small models on an
// emulated device, against this machine.

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/testing/arrays.h"
#include "tests/testing/cuda_emulator/emulated_device.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/training_model.h"
#include "tests/unit/worker/compute/executor_fixture.h"
#include "worker/compute/executor.h"
#include "worker/compute/planned_gpu.h"

namespace syncline::worker {
namespace {

using testing::EmulatedDevice;
using testing::MakeTrainingModel;
using testing::TrainingModel;

// The parts of a transformer's block, its attention as products and a softmax.
TrainingModel Block() {
  return MakeTrainingModel(
      "(float[N,4,6] x, float[6] w_s, float[6] w_b, float[6,6] w_q, "
      "float[6,6] w_k, float[6,6] w_v, float[6,12] w_u, float[12] w_c, "
      "float[12,6] w_d, float[24,3] w_o, float[3] w_p) => (float[N,3] y)",
      "float scale = {0.4}",
      "n = LayerNormalization <axis = -1> (x, w_s, w_b)\n"
      "q = MatMul(n, w_q)\n k = MatMul(n, w_k)\n v = MatMul(n, w_v)\n"
      "t = Transpose <perm = [0, 2, 1]> (k)\n p = MatMul(q, t)\n"
      "z = Mul(p, scale)\n a = Softmax(z)\n h = MatMul(a, v)\n"
      "r = Add(x, h)\n u = MatMul(r, w_u)\n c = Add(u, w_c)\n"
      "g = Gelu(c)\n d = MatMul(g, w_d)\n e = Add(r, d)\n"
      "f = Flatten <axis = 1> (e)\n y = Gemm(f, w_o, w_p)",
      20);
}

// Convolutions, the second one in groups, with batch normalisation and pooling.
TrainingModel Convolutions() {
  return MakeTrainingModel(
      "(float[N,2,7,6] x, float[6,2,3,3] w_a, float[6] w_b, float[6] w_s, "
      "float[6] w_t, float[6] w_running_m, float[6] w_running_v, "
      "float[6,3,3,3] w_c, "
      "float[6,3] w_o, float[3] w_p) => (float[N,3] y)",
      "",
      "a = Conv <pads = [1, 1, 1, 1], strides = [2, 1]> (x, w_a, w_b)\n"
      "b = BatchNormalization(a, w_s, w_t, w_running_m, "
      "w_running_v)\n"
      "r = Relu(b)\n p = MaxPool <kernel_shape = [2, 2]> (r)\n"
      "c = Conv <group = 2, pads = [1, 1, 1, 1]> (p, w_c)\n"
      "g = GlobalAveragePool(c)\n f = Flatten <axis = 1> (g)\n"
      "y = Gemm(f, w_o, w_p)",
      20);
}

void ExpectSameSteps(const TrainingModel& m, int64_t micro_batches,
                     int segments, DType type, double tolerance) {
  constexpr auto kLoss = LossSpec::SOFTMAX_CROSS_ENTROPY;
  SeededExecutor here(m, kLoss, 6, micro_batches, segments, 1, nullptr,
                      /*device=*/nullptr, type);
  EmulatedDevice device;
  SeededExecutor there(m, kLoss, 6, micro_batches, segments, 1, nullptr,
                       &device, type);
  for (const int64_t size : {6, 4}) {
    const Batch batch = here.MakeBatch(size);
    const double loss = here.Step(batch);
    EXPECT_NEAR(there.Step(batch), loss, tolerance * loss);
    const auto want = here.Gradients();
    const auto got = there.Gradients();
    for (int i = 0; i < here.count(); ++i) {
      SCOPED_TRACE(here.name(i));
      testing::ExpectNear(got[i], {want[i].begin(), want[i].end()}, tolerance);
    }
    // Variances that were drawn may be negative: NaN is NaN on both.
    const auto want_loss = here.executor().Evaluate(batch);
    const auto evaluated = there.executor().Evaluate(batch);
    ASSERT_OK(want_loss.status());
    ASSERT_OK(evaluated.status());
    EXPECT_EQ(std::isnan(evaluated->loss_sum), std::isnan(want_loss->loss_sum));
    if (std::isnan(want_loss->loss_sum)) continue;
    EXPECT_NEAR(evaluated->loss_sum, want_loss->loss_sum, tolerance * loss);
  }
  EXPECT_EQ(device.status(), absl::OkStatus());
  EXPECT_GT(device.launches(), 50);
}

TEST(ExecutorCudaTest, AStepIsThatOfThisMachine) {
  ExpectSameSteps(Block(), 1, 1, DType::kFloat32, 1e-5);
}

TEST(ExecutorCudaTest, InPartsAndWithWhatRunsAgain) {
  ExpectSameSteps(Block(), 2, 2, DType::kFloat32, 1e-5);
}

TEST(ExecutorCudaTest, ConvolutionsAreThoseOfThisMachine) {
  ExpectSameSteps(Convolutions(), 1, 1, DType::kFloat32, 1e-4);
}

// A sum that is rounded to 16 bits may be rounded to the next number.
TEST(ExecutorCudaTest, In16Bits) {
  ExpectSameSteps(Block(), 1, 1, DType::kBfloat16, 4.0 / 256);
}

// A plan that is made without a GPU is within 5 % of the memory that is then
// taken on one, where no layer has scratch memory of its device.
TEST(ExecutorCudaTest, TakesTheMemoryThatWasPlannedWithoutAGpu) {
  const TrainingModel m = Block();
  Executor::Options options;
  PlannedGpu planned;
  options.device = &planned;
  options.loss.set_kind(LossSpec::SOFTMAX_CROSS_ENTROPY);
  options.batch_size = 600;
  options.eval_batch_size = 900;
  const auto plan = Executor::Plan(m.model, m.training, options);
  ASSERT_OK(plan.status());
  EXPECT_EQ(plan->device, "cuda");
  EXPECT_EQ(plan->host_bytes(), plan->parameter_bytes + plan->gradient_bytes);

  EmulatedDevice device;
  const uint64_t before = device.FreeBytes();
  SeededExecutor executor(m, LossSpec::SOFTMAX_CROSS_ENTROPY, 600, 1, 1, 1,
                          nullptr, &device);
  executor.Step(executor.MakeBatch(600));
  ASSERT_OK(executor.executor().Evaluate(executor.MakeBatch(600)).status());
  const auto taken = static_cast<double>(before - device.FreeBytes());
  EXPECT_NEAR(static_cast<double>(plan->device_bytes()), taken, 0.05 * taken);
}

TEST(ExecutorCudaTest, WhatTheGpuCannotHoldIsRefused) {
  EmulatedDevice device(1, /*memory_bytes=*/uint64_t{65} << 20);
  const TrainingModel m = Block();
  Executor::Options options;
  options.device = &device;
  options.loss.set_kind(LossSpec::SOFTMAX_CROSS_ENTROPY);
  options.batch_size = 10000;
  const absl::Status refused =
      Executor::Create(m.model, m.training, options).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              ::testing::HasSubstr("parameters, gradients and activations on "
                                   "emulated need "));
}

TEST(ExecutorCudaTest, TheSameBitsInAnyOrderOfThreads) {
  const TrainingModel m = Block();
  std::vector<std::vector<float>> first;
  for (const uint64_t seed : {1, 2, 3}) {
    EmulatedDevice device(seed);
    SeededExecutor executor(m, LossSpec::SOFTMAX_CROSS_ENTROPY, 6, 1, 1, 1,
                            nullptr, &device);
    executor.Step(executor.MakeBatch(6));
    if (seed == 1) first = executor.Gradients();
    EXPECT_EQ(executor.Gradients(), first);
  }
}

}  // namespace
}  // namespace syncline::worker
