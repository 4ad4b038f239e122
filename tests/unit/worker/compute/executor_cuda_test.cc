// Goal: a whole training step runs on a GPU's kernels: plan, transfers,
// forward, loss, backward, evaluation; and a GPU that fails in it says at which
// operator. Method: steps of small models on an emulated device, against this
// machine.

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
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

// Copies from and to a GPU count: each step's values in, and its
// gradients out.
TEST(ExecutorCudaTest, CopiesAndPassesAreMeasured) {
  EmulatedDevice device;
  const TrainingModel m = Block();
  SeededExecutor executor(m, LossSpec::SOFTMAX_CROSS_ENTROPY, 6, 1, 1, 1,
                          nullptr, &device);
  uint64_t bytes = 0;
  for (size_t i = 0; i < m.training.parameters.size(); ++i) {
    bytes += executor.executor().parameter(static_cast<int>(i)).size() *
             sizeof(float);
  }
  const DeviceMeter& meter = device.meter();
  const uint64_t in = meter.copied_bytes(DeviceMeter::kToDevice);
  const uint64_t out = meter.copied_bytes(DeviceMeter::kToHost);
  executor.Step(executor.MakeBatch(6));
  EXPECT_GE(meter.copied_bytes(DeviceMeter::kToDevice) - in, bytes);
  EXPECT_GE(meter.copied_bytes(DeviceMeter::kToHost) - out, bytes);
  EXPECT_LT(meter.copied_bytes(DeviceMeter::kToHost) - out, 2 * bytes);
  EXPECT_GT(meter.copy_seconds(DeviceMeter::kToDevice), 0);
  EXPECT_GT(meter.pass_seconds(DeviceMeter::kForward), 0);
  EXPECT_GT(meter.pass_seconds(DeviceMeter::kBackward), 0);
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

// A residual network's block: what is added to the sum has gone through two
// convolutions, or through one of 1 x 1 with a stride.
TrainingModel ResidualBlock() {
  return testing::MakeTrainingModel(
      "(float[N,3,9,7] x, float[8,3,3,3] w_a, float[8] w_as, float[8] w_at, "
      "float[8] w_running_am, float[8] w_running_av, float[8,8,3,3] w_b, "
      "float[8] w_bs, float[8] w_bt, float[8] w_running_bm, "
      "float[8] w_running_bv, float[8,8,3,3] w_c, float[8,8,1,1] w_d, "
      "float[8,3] w_o, float[3] w_p) => (float[N,3] y)",
      "",
      "a = Conv <pads = [1, 1, 1, 1]> (x, w_a)\n"
      "n = BatchNormalization(a, w_as, w_at, w_running_am, w_running_av)\n"
      "r = Relu(n)\n"
      "m = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (r)\n"
      "b = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (m, w_b)\n"
      "o = BatchNormalization(b, w_bs, w_bt, w_running_bm, w_running_bv)\n"
      "s = Relu(o)\n"
      "c = Conv <pads = [1, 1, 1, 1]> (s, w_c)\n"
      "d = Conv <strides = [2, 2]> (m, w_d)\n"
      "t = Add(c, d)\n u = Relu(t)\n"
      "g = GlobalAveragePool(u)\n f = Flatten <axis = 1> (g)\n"
      "y = Gemm(f, w_o, w_p)",
      20);
}

// Makes a step and moves the parameters by it. The loss.
double Descend(SeededExecutor* executor, const Batch& batch) {
  const double loss = executor->Step(batch);
  const auto gradients = executor->Gradients();
  for (int i = 0; i < executor->count(); ++i) {
    if (absl::StrContains(executor->name(i), "running")) continue;
    const absl::Span<float> values = executor->executor().parameter(i);
    for (size_t k = 0; k < values.size(); ++k) {
      values[k] -= 0.1f / static_cast<float>(batch.size) * gradients[i][k];
    }
  }
  return loss;
}

// This machine widens every operator.
TEST(ExecutorCudaTest, ABlockOfConvolutionsTrainsIn16BitsAsIfWidened) {
  const TrainingModel m = ResidualBlock();
  constexpr auto kLoss = LossSpec::SOFTMAX_CROSS_ENTROPY;
  for (const bool has_cudnn : {true, false}) {
    SCOPED_TRACE(has_cudnn);
    EmulatedDevice device;
    if (has_cudnn) device.UseCudnn(testing::MakeCudnnDouble());
    SeededExecutor here(m, kLoss, 8, 1, 1, 1, nullptr, /*device=*/nullptr,
                        DType::kBfloat16);
    SeededExecutor there(m, kLoss, 8, 1, 1, 1, nullptr, &device,
                         DType::kBfloat16);
    double first = 0, last = 0;
    constexpr int kSteps = 6;
    for (int step = 0; step < kSteps; ++step) {
      const Batch batch = here.MakeBatch(8);
      const double loss = Descend(&here, batch);
      EXPECT_NEAR(Descend(&there, batch), loss, 4.0 / 256 * loss);
      if (step == 0) first = loss;
      last = loss;
    }
    EXPECT_LT(last, 0.95 * first) << "it does not learn";
    for (int i = 0; i < here.count(); ++i) {
      SCOPED_TRACE(here.name(i));
      const auto want = here.executor().parameter(i);
      testing::ExpectNear(there.executor().parameter(i),
                          {want.begin(), want.end()}, 4.0 / 256);
    }
    EXPECT_EQ(device.status(), absl::OkStatus());
    if (!has_cudnn) continue;
    const testing::CudnnDoubleState& seen = testing::CudnnDouble();
    // Four layers forward, and the data of three, in each step; filters have
    // float32 gradients.
    EXPECT_EQ(seen.runs_in_16_bits, kSteps * (4 + 3));
    EXPECT_EQ(seen.runs_in_tf32, kSteps * 4);
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

// step_graphs_test has all kinds of steps; a GPU runs these.
TEST(ExecutorCudaTest, GraphsHaveTheBitsOfQueuedSteps) {
  for (const TrainingModel& m : {Masked(), Convolutions()}) {
    EmulatedDevice queues;
    queues.OfferGraphs(false);
    EmulatedDevice keeps;
    ExpectSameBitsAsQueued(&queues, &keeps, m, 2, DType::kFloat32);
    EXPECT_GT(keeps.graph_launches(), 0);
  }
}

// A plan that is made without a GPU is within 5 % of the memory that is then
// taken on one, where attention and recurrent layers have no scratch memory.
void ExpectPlannedMemory(const TrainingModel& m, DType precision,
                         bool has_cudnn = false, int64_t eval_batch = 900) {
  Executor::Options options;
  options.precision = precision;
  PlannedGpu planned;
  options.device = &planned;
  options.loss.set_kind(LossSpec::SOFTMAX_CROSS_ENTROPY);
  options.batch_size = 600;
  options.eval_batch_size = eval_batch;
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
    // As SeededExecutor has it: a pass with a bias has the most scratch memory,
    // in evaluations too.
    ExpectPlannedMemory(Convolutions(), DType::kBfloat16, has_cudnn,
                        /*eval_batch=*/603);
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

TrainingModel Normalized() {
  return testing::MakeTrainingModel(
      "(float[N,6] x, float[6] w_s, float[6] w_b, float[6,3] w_o, "
      "float[3] w_p) => (float[N,3] y)",
      "",
      "n = LayerNormalization <axis = -1> (x, w_s, w_b)\n g = Gelu(n)\n"
      "f = Flatten <axis = 1> (g)\n y = Gemm(f, w_o, w_p)",
      20);
}

// The part of an error that names what was running.
std::string RunningIn(const std::string& error) {
  const size_t at = error.find("running: ");
  if (at == std::string::npos) return error;
  const std::string name = error.substr(at + 9);
  return name.substr(0, name.find(": "));
}

// A step on a device whose launch of this number fails: what is said of it;
// empty: there is no such launch.
std::string FailureAt(int64_t launch) {
  EmulatedDevice device;
  SeededExecutor executor(Normalized(), LossSpec::SOFTMAX_CROSS_ENTROPY, 4, 1,
                          1, 1, nullptr, &device);
  device.FailAt(launch);
  const absl::Status status =
      executor.executor()
          .TrainStep(executor.MakeBatch(4), /*clock=*/1, Ignore)
          .status();
  EXPECT_TRUE(status.ok() || absl::IsInternal(status)) << status;
  EXPECT_EQ(device.health().message(), status.message());
  return std::string(status.message());
}

TEST(ExecutorCudaTest, AFailureNamesItsOperatorWhereverItComes) {
  std::vector<std::string> named;
  for (int64_t launch = 1;; ++launch) {
    const std::string error = FailureAt(launch);
    if (error.empty()) break;
    ASSERT_LT(launch, 1000);
    // A mark that fails is written by nobody: what ran before is named.
    if (absl::StrContains(error, "MarkKernel")) continue;
    const std::string running = RunningIn(error);
    if (named.empty() || named.back() != running) named.push_back(running);
  }
  // Products are a library's, which does not fail here; Flatten moves nothing.
  const std::vector<std::string> want = {
      "operator 1 of 4, LayerNormalization \"LayerNormalization#0\", forward",
      "operator 2 of 4, Gelu \"Gelu#1\", forward",
      "the loss",
      "operator 4 of 4, Gemm \"Gemm#3\", backward",
      "operator 2 of 4, Gelu \"Gelu#1\", backward",
      "operator 1 of 4, LayerNormalization \"LayerNormalization#0\", backward"};
  EXPECT_EQ(named, want);
}

// One write for the loss, and one for each operator that queues work, in each
// direction. Inputs have a stream of their own, without marks.
TEST(ExecutorCudaTest, AMarkIsOneWriteForEachOperator) {
  EmulatedDevice device;
  SeededExecutor executor(Normalized(), LossSpec::SOFTMAX_CROSS_ENTROPY, 4, 1,
                          1, 1, nullptr, &device);
  const Batch batch = executor.MakeBatch(4);
  for (int step = 1; step <= 3; ++step) {
    executor.Step(batch);
    EXPECT_EQ(device.marks(), 7 * step);
  }
  ASSERT_OK(executor.executor().Evaluate(batch).status());
  EXPECT_EQ(device.marks(), 3 * 7 + 4);
  EmulatedDevice other;
  SeededExecutor block(Block(), LossSpec::SOFTMAX_CROSS_ENTROPY, 6, 1, 1, 1,
                       nullptr, &other);
  block.Step(block.MakeBatch(6));
  EXPECT_LE(other.marks(), 2 * 16 + 1);
}

}  // namespace
}  // namespace syncline::worker
