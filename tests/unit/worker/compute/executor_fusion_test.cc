// Goal: steps whose operators a GPU computes together are the steps of those
// operators: the same bits where sums are normalised at once, the same numbers
// where functions are in products. Method: small models on an emulated device,
// fused and not, against each other, this machine and differences of the loss.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/testing/cuda_emulator/emulated_device.h"
#include "tests/testing/cuda_emulator/product_double.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/training_model.h"
#include "tests/testing/zoo_training.h"
#include "tests/unit/worker/compute/device_steps.h"
#include "tests/unit/worker/compute/executor_fixture.h"
#include "worker/compute/executor.h"
#include "worker/compute/planned_gpu.h"
#include "worker/compute/step_recorder.h"

namespace syncline::worker {
namespace {

using testing::EmulatedDevice;
using testing::Epilogues;
using testing::TrainingModel;

constexpr auto kCrossEntropy = LossSpec::SOFTMAX_CROSS_ENTROPY;
constexpr char kTanhGelu[] = "Gelu <approximate = \"tanh\">";

struct StepRun {
  double loss = 0;
  double evaluated = 0;
  std::vector<std::vector<float>> gradients;
  int64_t launches = 0;
  int64_t epilogues = 0;  // products that have one
};

struct RunOptions {
  int64_t micro_batches = 1;
  int segments = 1;
  DType type = DType::kFloat32;
};

StepRun RunStep(const TrainingModel& m, bool fuses, const RunOptions& options) {
  EmulatedDevice device;
  SeededExecutor executor(m, kCrossEntropy, 6, options.micro_batches,
                          options.segments, 1, nullptr, &device, options.type,
                          /*batch_max=*/0, /*takes_tf32=*/false, fuses);
  StepRun run;
  const int64_t before = Epilogues().runs;
  // The second one is smaller, and its gradients overwrite the first one's.
  executor.Step(executor.MakeBatch(6));
  run.loss = executor.Step(executor.MakeBatch(5));
  run.gradients = executor.Gradients();
  const auto evaluated = executor.executor().Evaluate(executor.MakeBatch(4));
  EXPECT_TRUE(evaluated.ok()) << evaluated.status();
  if (evaluated.ok()) run.evaluated = evaluated->loss_sum;
  EXPECT_EQ(device.status(), absl::OkStatus());
  run.launches = device.launches();
  run.epilogues = Epilogues().runs - before;
  return run;
}

void ExpectSameNumbers(const StepRun& got, const StepRun& want,
                       double tolerance) {
  EXPECT_NEAR(got.loss, want.loss, tolerance * want.loss);
  EXPECT_NEAR(got.evaluated, want.evaluated, tolerance * want.evaluated);
  ASSERT_EQ(got.gradients.size(), want.gradients.size());
  for (size_t i = 0; i < want.gradients.size(); ++i) {
    SCOPED_TRACE(absl::StrCat("parameter ", i));
    const auto& values = want.gradients[i];
    testing::ExpectNear(got.gradients[i], {values.begin(), values.end()},
                        tolerance);
  }
}

void ExpectSameFused(const TrainingModel& m, const RunOptions& options,
                     double tolerance) {
  const StepRun fused = RunStep(m, /*fuses=*/true, options);
  const StepRun apart = RunStep(m, /*fuses=*/false, options);
  ExpectSameNumbers(fused, apart, tolerance);
  EXPECT_GT(fused.epilogues, 0);
  EXPECT_EQ(apart.epilogues, 0);
  EXPECT_LT(fused.launches, apart.launches);
}

// All that the options allow, in each of them.
std::vector<RunOptions> AllOptions() {
  return {{},
          {.micro_batches = 2},
          {.segments = 3},
          {.micro_batches = 4, .segments = 2}};
}

TEST(ExecutorFusionTest, AFusedBlockIsTheBlock) {
  for (const int width : {16, 7}) {  // 7: no row that GELU could keep
    for (RunOptions options : AllOptions()) {
      SCOPED_TRACE(absl::StrCat(width, " ", options.micro_batches, " ",
                                options.segments));
      ExpectSameFused(FusedBlock(width), options, 2e-5);
      options.type = DType::kBfloat16;
      ExpectSameFused(FusedBlock(width), options, 8.0 / 256);
    }
  }
}

TEST(ExecutorFusionTest, FusedGemmsAreTheGemms) {
  for (const char* const function : {"Relu", kTanhGelu}) {
    for (RunOptions options : AllOptions()) {
      SCOPED_TRACE(absl::StrCat(function, " ", options.micro_batches));
      ExpectSameFused(Gemms(function), options, 2e-5);
      options.type = DType::kFloat16;
      ExpectSameFused(Gemms(function), options, 4.0 / 256);
    }
  }
}

TEST(ExecutorFusionTest, AFusedStepIsThatOfThisMachine) {
  for (const TrainingModel& m :
       {FusedBlock(8), FusedBlock(5), Gemms("Relu"), Gemms(kTanhGelu)}) {
    for (const int64_t parts : {1, 2}) {
      EmulatedDevice device;
      ExpectSameStepsOn(&device, m, parts, 1, DType::kFloat32, 2e-5);
      EXPECT_EQ(device.status(), absl::OkStatus());
    }
  }
}

// Without products that have epilogues.
TrainingModel Residuals() {
  return testing::MakeTrainingModel(
      "(float[N,3,6] x, float[6,6] w_a, float[6] w_s, float[6] w_t, "
      "float[6,6] w_b, float[6] w_r, float[18,3] w_o, float[3] w_p) => "
      "(float[N,3] y)",
      "",
      "a = MatMul(x, w_a)\n s = Add(a, x)\n n = LayerNormalization(s, w_s, "
      "w_t)\n b = MatMul(n, w_b)\n r = Add(s, b)\n o = RMSNormalization(r, "
      "w_r)\n z = Add(r, o)\n v = Flatten <axis = 1> (z)\n"
      "y = Gemm(v, w_o, w_p)",
      23);
}

TEST(ExecutorFusionTest, GradientsAreDerivatives) {
  const TrainingModel perceptron = testing::MakeTrainingModel(
      "(float[N,3] x, float[3,8] w_a, float[8] w_b, float[8,3] w_c) => "
      "(float[N,3] y)",
      "",
      "h = Gemm(x, w_a, w_b)\n g = Gelu <approximate = \"tanh\"> (h)\n"
      "y = MatMul(g, w_c)",
      20);
  for (const TrainingModel& m : {perceptron, Residuals()}) {
    EmulatedDevice device;
    SeededExecutor executor(m, kCrossEntropy, 2, 1, 1, 1, nullptr, &device);
    executor.ExpectGradientsAreDerivatives(2);
  }
}

TEST(ExecutorFusionTest, SumsThatAreNormalisedAtOnceHaveTheSameBits) {
  // Its bias is in the product either way, in float32 and in 16 bits.
  Epilogues().has_no_algorithm = [](const auto&, const auto&) { return true; };
  for (const DType type :
       {DType::kFloat32, DType::kBfloat16, DType::kFloat16}) {
    for (RunOptions options : AllOptions()) {
      SCOPED_TRACE(absl::StrCat(DTypeName(type), " ", options.micro_batches,
                                " ", options.segments));
      options.type = type;
      const StepRun fused = RunStep(Residuals(), /*fuses=*/true, options);
      const StepRun apart = RunStep(Residuals(), /*fuses=*/false, options);
      EXPECT_EQ(fused.loss, apart.loss);
      EXPECT_EQ(fused.evaluated, apart.evaluated);
      EXPECT_EQ(fused.gradients, apart.gradients);
      EXPECT_LT(fused.launches, apart.launches);
    }
  }
  Epilogues() = {};
}

TEST(ExecutorFusionTest, WhatTheLibraryHasNotIsComputedApart) {
  const StepRun apart = RunStep(Gemms("Relu"), /*fuses=*/false, {});
  Epilogues().has_no_algorithm = [](const auto&, const auto& epilogue) {
    return epilogue.is_gradient;
  };
  ExpectSameNumbers(RunStep(Gemms("Relu"), /*fuses=*/true, {}), apart, 1e-5);
  Epilogues() = {};
  Epilogues().drops_nan = true;
  const StepRun own = RunStep(Gemms("Relu"), /*fuses=*/true, {});
  EXPECT_EQ(own.loss, apart.loss) << "a ReLU that drops NaN is not used";
  EXPECT_EQ(own.gradients, apart.gradients);
  Epilogues() = {};
}

// Losses of steps of gradient descent.
std::vector<double> Train(const TrainingModel& m, bool fuses, DType type) {
  EmulatedDevice device;
  SeededExecutor executor(m, kCrossEntropy, 6, 1, 1, 1, nullptr, &device, type,
                          /*batch_max=*/0, /*takes_tf32=*/false, fuses);
  std::vector<double> losses;
  for (int step = 0; step < 20; ++step) {
    losses.push_back(executor.Step(executor.MakeBatch(6), step));
    const auto gradients = executor.Gradients();
    for (int i = 0; i < executor.count(); ++i) {
      const auto values = executor.executor().parameter(i);
      for (size_t k = 0; k < values.size(); ++k) {
        values[k] -= 0.05f * gradients[i][k];
      }
    }
  }
  return losses;
}

TEST(ExecutorFusionTest, ModelsLearnAsTheyDoUnfused) {
  for (const TrainingModel& m : {FusedBlock(8), Gemms("Relu")}) {
    for (const DType type : {DType::kFloat32, DType::kBfloat16}) {
      const std::vector<double> fused = Train(m, /*fuses=*/true, type);
      const std::vector<double> apart = Train(m, /*fuses=*/false, type);
      const double tolerance = type == DType::kFloat32 ? 1e-4 : 5e-2;
      for (size_t i = 0; i < apart.size(); ++i) {
        EXPECT_NEAR(fused[i], apart[i], tolerance * apart[0]) << "step " << i;
      }
      EXPECT_LT(fused.back(), 0.9 * fused.front());
      if (type == DType::kFloat32) continue;
      EXPECT_EQ(Train(m, /*fuses=*/true, type), fused) << "not the same bits";
    }
  }
}

TEST(ExecutorFusionTest, ModelsOfTheZooTrainAsOnThisMachine) {
  for (const ZooCase& c :
       {ZooCase{"Mlp", "mlp", {{"inputs", "8"}, {"hidden", "16,16"}}},
        ZooCase{"Gpt", "gpt", SmallModel({}), 0.5f},
        ZooCase{"Bert", "bert", SmallModel({}), 0.3f}}) {
    SCOPED_TRACE(c);
    ASSERT_OK_AND_ASSIGN(const auto want, TrainZooModel(c, 3));
    EmulatedDevice device;
    const int64_t before = Epilogues().runs;
    ASSERT_OK_AND_ASSIGN(const auto got, TrainZooModel(c, 3, &device));
    EXPECT_EQ(Epilogues().runs > before, c.model != "gpt");
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(got[i], want[i], 1e-4 * want[i]) << "step " << i;
    }
  }
}

// The part of an error that names what was running.
std::string WhatRan(const std::string& error) {
  const size_t at = error.find("running: ");
  if (at == std::string::npos) return "";
  const std::string name = error.substr(at + 9);
  return name.substr(0, name.find(": "));
}

TEST(ExecutorFusionTest, AFailureNamesAllOperatorsOfAStep) {
  std::vector<std::string> named;
  for (int64_t launch = 1; launch < 1000; ++launch) {
    EmulatedDevice device;
    SeededExecutor executor(Residuals(), kCrossEntropy, 4, 1, 1, 1, nullptr,
                            &device);
    device.FailAt(launch);
    const absl::Status status =
        executor.executor()
            .TrainStep(executor.MakeBatch(4), /*clock=*/1, Ignore)
            .status();
    if (status.ok()) break;
    const std::string error(status.message());
    if (!absl::StrContains(error, "MarkKernel"))
      named.push_back(WhatRan(error));
  }
  EXPECT_THAT(named, ::testing::Contains("operator 2 of 7, Add + "
                                         "LayerNormalization \"Add#1\", "
                                         "forward"));
  EXPECT_THAT(named, ::testing::Contains("operator 4 of 7, Add + "
                                         "RMSNormalization \"Add#4\", "
                                         "backward"));
}

TEST(ExecutorFusionTest, AValueThatIsNotFiniteIsFoundInAFusedStep) {
  EmulatedDevice device;
  SeededExecutor executor(Gemms(kTanhGelu), kCrossEntropy, 6, 1, 1, 1, nullptr,
                          &device);
  std::fill(executor.executor().parameter(2).begin(),
            executor.executor().parameter(2).end(), 3e38f);
  const absl::Status status =
      executor.executor().TrainStep(executor.MakeBatch(6), 1, Ignore).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(
      std::string(status.message()),
      ::testing::HasSubstr("node \"Gemm#2\" (Gemm + Gelu) output \"j\""));
}

// "FORWARD MatMul + Add + Gelu", each once.
TEST(ExecutorFusionTest, AProfileHasAFusedStepOnceForAllPartsOfABatch) {
  EmulatedDevice device;
  // Parts of 2 and of 1 samples.
  SeededExecutor executor(Gemms("Relu"), kCrossEntropy, 3, 2, 1, 1, nullptr,
                          &device);
  StepRecorder recorder(1);
  executor.executor().UseRecorder(&recorder);
  recorder.BeginStep(0);
  executor.Step(executor.MakeBatch(3));
  recorder.EndStep(3);
  std::vector<std::string> activities;
  for (const auto& activity : recorder.profile().activities()) {
    if (activity.node().empty()) continue;
    activities.push_back(absl::StrCat(StepProfile::Kind_Name(activity.kind()),
                                      " ", activity.node(), " ",
                                      activity.op_type()));
  }
  EXPECT_THAT(
      activities,
      ::testing::ElementsAre(
          "FORWARD Gemm#0 Gemm + Relu", "FORWARD Gemm#2 Gemm + Relu",
          "FORWARD Gemm#4 Gemm", "BACKWARD Gemm#4 Gemm",
          "BACKWARD Gemm#2 Gemm + Relu", "BACKWARD Gemm#0 Gemm + Relu"));
}

ExecutorPlan PlanOf(const TrainingModel& m, DType type, bool fuses) {
  PlannedGpu planned;
  Executor::Options options;
  options.device = &planned;
  options.precision = type;
  options.loss.set_kind(kCrossEntropy);
  options.batch_size = 500;
  options.eval_batch_size = 503;
  options.fuses = fuses;
  const auto plan = Executor::Plan(m.model, m.training, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *plan;
}

double FlopsOfAll(const ExecutorPlan& plan) {
  double sum = 0;
  for (const PlannedOperator& o : plan.operators) sum += o.flops();
  return sum;
}

TEST(ExecutorFusionTest, APlanCountsTheSameOperations) {
  for (const TrainingModel& m : {FusedBlock(16), Gemms("Relu")}) {
    for (const DType type : {DType::kFloat32, DType::kBfloat16}) {
      const ExecutorPlan fused = PlanOf(m, type, /*fuses=*/true);
      const ExecutorPlan apart = PlanOf(m, type, /*fuses=*/false);
      EXPECT_EQ(FlopsOfAll(fused), FlopsOfAll(apart));
      // Bits of narrow rows are 16 bytes all the same.
      EXPECT_LE(fused.device_bytes(), apart.device_bytes() * 1.1);
    }
  }
}

// A plan that is made without a GPU has the memory that is then taken.
TEST(ExecutorFusionTest, APlanCountsTheMemoryOfWhatIsFused) {
  const TrainingModel m = FusedBlock(16);
  EmulatedDevice device;
  const uint64_t before = device.FreeBytes();
  SeededExecutor executor(m, kCrossEntropy, 500, 1, 1, 1, nullptr, &device,
                          DType::kBfloat16);
  executor.Step(executor.MakeBatch(500));
  ASSERT_OK(executor.executor().Evaluate(executor.MakeBatch(503)).status());
  const auto taken = static_cast<double>(before - device.FreeBytes());
  const auto planned = static_cast<double>(
      PlanOf(m, DType::kBfloat16, /*fuses=*/true).device_bytes());
  EXPECT_NEAR(planned, taken, 0.05 * taken);
}

}  // namespace
}  // namespace syncline::worker
