// Goal: a whole training step runs on a GPU's kernels: plan, transfers,
// forward, loss, backward, evaluation. Method: steps of small models on an
// emulated device, against this machine.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "tests/testing/cuda_emulator/cudnn_double.h"
#include "tests/testing/cuda_emulator/emulated_device.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/training_model.h"
#include "tests/unit/worker/compute/device_steps.h"
#include "tests/unit/worker/compute/executor_fixture.h"
#include "worker/compute/executor.h"
#include "worker/compute/planned_gpu.h"

namespace syncline::worker {
namespace {

using testing::EmulatedDevice;
using testing::TrainingModel;

void ExpectSameSteps(const TrainingModel& m, int64_t micro_batches,
                     int segments, DType type, double tolerance) {
  EmulatedDevice device;
  ExpectSameStepsOn(&device, m, micro_batches, segments, type, tolerance);
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

TEST(ExecutorCudaTest, ConvolutionsByCudnnAreThoseOfThisMachine) {
  for (const DType type : {DType::kFloat32, DType::kBfloat16}) {
    EmulatedDevice device;
    device.UseCudnn(testing::MakeCudnnDouble());
    ExpectSameStepsOn(&device, Convolutions(), 1, 1, type,
                      type == DType::kFloat32 ? 1e-4 : 8.0 / 256);
    EXPECT_EQ(device.status(), absl::OkStatus());
    const testing::CudnnDoubleState& seen = testing::CudnnDouble();
    // Two layers; the first one's data has no gradient. The smaller batches and
    // the evaluations have plans of their own.
    EXPECT_GE(seen.forwards, 8);
    EXPECT_EQ(seen.backwards_of_filters, 4);
    EXPECT_EQ(seen.backwards_of_data, 2);
  }
}

TEST(ExecutorCudaTest, AConvolutionThatCudnnRefusesIsNamed) {
  EmulatedDevice device;
  device.UseCudnn(testing::MakeCudnnDouble());
  const TrainingModel m = Convolutions();
  SeededExecutor executor(m, LossSpec::SOFTMAX_CROSS_ENTROPY, 6, 1, 1, 1,
                          nullptr, &device);
  testing::CudnnDouble().fails_at = "run";
  testing::CudnnDouble().fails_with = 5000;
  const auto result =
      executor.executor().TrainStep(executor.MakeBatch(6), 1, Ignore);
  EXPECT_TRUE(absl::IsInternal(result.status())) << result.status();
  EXPECT_THAT(std::string(result.status().message()),
              ::testing::AllOf(
                  ::testing::HasSubstr("Conv"),
                  ::testing::HasSubstr("cuDNN 9.19.0: a convolution's forward "
                                       "pass by cuDNN: CUDNN_STATUS_5000")));
}

// Gradients of a step on an emulated GPU.
std::vector<std::vector<float>> GradientsOf(const TrainingModel& m,
                                            Device* device, bool takes_tf32) {
  SeededExecutor executor(m, LossSpec::SOFTMAX_CROSS_ENTROPY, 6, 1, 1, 1,
                          nullptr, device, DType::kFloat32, /*batch_max=*/0,
                          takes_tf32);
  executor.Step(executor.MakeBatch(6));
  return executor.Gradients();
}

TEST(ExecutorCudaTest, Tf32RoundsFactorsOfProductsWhereItIsAskedFor) {
  for (const TrainingModel& m : {Block(), Convolutions()}) {
    EmulatedDevice device;
    device.UseCudnn(testing::MakeCudnnDouble());
    const auto whole = GradientsOf(m, &device, /*takes_tf32=*/false);
    EXPECT_EQ(testing::CudnnDouble().runs_in_tf32, 0);
    const auto rounded = GradientsOf(m, &device, /*takes_tf32=*/true);
    EXPECT_NE(rounded, whole);
    ASSERT_EQ(rounded.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i) {
      testing::ExpectNear(rounded[i], {whole[i].begin(), whole[i].end()}, 1e-2);
    }
    // The next job's precision is its own.
    EXPECT_EQ(GradientsOf(m, &device, /*takes_tf32=*/false), whole);
    EXPECT_EQ(GradientsOf(m, nullptr, /*takes_tf32=*/true),
              GradientsOf(m, nullptr, /*takes_tf32=*/false))
        << "processors compute in float32";
  }
}

// A sum that is rounded to 16 bits may be rounded to the next number.
TEST(ExecutorCudaTest, In16Bits) {
  ExpectSameSteps(Block(), 1, 1, DType::kBfloat16, 4.0 / 256);
}

// A plan that is made without a GPU is within 5 % of the memory that is then
// taken on one, where attention and recurrent layers have no scratch memory.
void ExpectPlannedMemory(const TrainingModel& m, DType precision,
                         bool has_cudnn = false) {
  Executor::Options options;
  options.precision = precision;
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
  if (has_cudnn) device.UseCudnn(testing::MakeCudnnDouble());
  const uint64_t before = device.FreeBytes();
  SeededExecutor executor(m, LossSpec::SOFTMAX_CROSS_ENTROPY, 600, 1, 1, 1,
                          nullptr, &device, precision);
  executor.Step(executor.MakeBatch(600));
  ASSERT_OK(executor.executor().Evaluate(executor.MakeBatch(600)).status());
  const auto taken = static_cast<double>(before - device.FreeBytes());
  EXPECT_NEAR(static_cast<double>(plan->device_bytes()), taken, 0.05 * taken);
}

TEST(ExecutorCudaTest, TakesTheMemoryThatWasPlannedWithoutAGpu) {
  ExpectPlannedMemory(Block(), DType::kFloat32);
}

TEST(ExecutorCudaTest, In16BitsToo) {
  ExpectPlannedMemory(Block(), DType::kBfloat16);
}

TEST(ExecutorCudaTest, AndForConvolutionsByWhomever) {
  for (const bool has_cudnn : {false, true}) {
    ExpectPlannedMemory(Convolutions(), DType::kFloat32, has_cudnn);
  }
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
