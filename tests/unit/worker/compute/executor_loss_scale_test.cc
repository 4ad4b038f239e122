// Goal: a scaled step has the gradients of the plain one, of parameters and of
// rows, and says which of them has overflowed. Method: graphs in float32, where
// a power of two changes no bit, with parts of a batch and on a device whose
// memory the host cannot touch; steps in float16 by hand.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "tests/testing/poisoned_device.h"
#include "tests/testing/training_model.h"
#include "tests/unit/worker/compute/executor_fixture.h"
#include "worker/compute/executor.h"

namespace syncline::worker {
namespace {

using testing::MakeTrainingModel;
using testing::TrainingModel;

std::unique_ptr<Executor> Scaled(const TrainingModel& model,
                                 LossSpec::Kind loss, int64_t batch_size,
                                 DType precision, int64_t micro_batches = 1,
                                 Device* device = nullptr) {
  Executor::Options options;
  options.device = device;
  options.loss.set_kind(loss);
  options.batch_size = batch_size;
  options.micro_batches = micro_batches;
  options.precision = precision;
  options.scales_loss = true;
  options.seed = 17;
  auto executor = Executor::Create(model.model, model.training, options);
  EXPECT_TRUE(executor.ok()) << executor.status();
  return executor.ok() ? *std::move(executor) : nullptr;
}

// With a running mean, which is no gradient.
TrainingModel Normalised() {
  return MakeTrainingModel(
      "(float[N,4] x, float[4,5] w_a, float[5] w_s, float[5] w_b, "
      "float[5] w_running_m, float[5] w_running_v, float[5,3] w_c) "
      "=> (float[N,3] y)",
      "",
      "h = MatMul(x, w_a)\n"
      "n = BatchNormalization(h, w_s, w_b, w_running_m, w_running_v)\n"
      "r = Tanh(n)\n"
      "y = MatMul(r, w_c)",
      15);
}

TEST(ExecutorLossScaleTest, InFloat32APowerOfTwoChangesNoBit) {
  const TrainingModel model = Normalised();
  testing::PoisonedDevice poisoned;
  for (const int64_t parts : {1, 3}) {
    SeededExecutor plain(model, LossSpec::SOFTMAX_CROSS_ENTROPY, 9, parts);
    const Batch batch = plain.MakeBatch(9);
    const double loss = plain.Step(batch);
    for (Device* const device :
         {static_cast<Device*>(nullptr), static_cast<Device*>(&poisoned)}) {
      const auto scaled = Scaled(model, LossSpec::SOFTMAX_CROSS_ENTROPY, 9,
                                 DType::kFloat32, parts, device);
      ASSERT_NE(scaled, nullptr);
      for (int i = 0; i < plain.count(); ++i) {
        const auto from = plain.executor().parameter(i);
        std::copy(from.begin(), from.end(), scaled->parameter(i).begin());
      }
      for (const float factor : {1.0f, 4096.0f, 0.125f}) {
        scaled->UseLossScale(factor);
        const auto result = scaled->TrainStep(batch, 3, Ignore);
        ASSERT_TRUE(result.ok()) << result.status();
        EXPECT_EQ(result->loss_sum, loss);
        EXPECT_EQ(result->overflow, "");
        for (int i = 0; i < plain.count(); ++i) {
          EXPECT_EQ(scaled->gradient(i), plain.executor().gradient(i))
              << plain.name(i) << " by " << factor;
        }
      }
    }
  }
}

// The gradient of h is 2 * 2^-14 * 2^-12: below what float16 has.
TEST(ExecutorLossScaleTest, SmallGradientsSurviveInFloat16) {
  const TrainingModel model = MakeTrainingModel(
      "(float[N,1] x, float[1,1] w_a, float[1,1] w_b) => (float[N,1] y)", "",
      "h = MatMul(x, w_a)\n y = MatMul(h, w_b)");
  const auto executor =
      Scaled(model, LossSpec::MEAN_SQUARED_ERROR, 1, DType::kFloat16);
  ASSERT_NE(executor, nullptr);
  executor->parameter(0)[0] = 1;
  executor->parameter(1)[0] = 0x1p-12f;
  Batch batch;
  batch.size = 1;
  batch.label_width = 1;
  batch.feeds = {{1}};
  batch.labels = {0x1p-12f - 0x1p-14f};
  for (const auto& [factor, want] :
       {std::pair{1.0f, 0.0f}, std::pair{1024.0f, 0x1p-25f}}) {
    executor->UseLossScale(factor);
    const auto result = executor->TrainStep(batch, 0, Ignore);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(executor->gradient(0)[0], want) << factor;
    EXPECT_EQ(executor->gradient(1)[0], 0x1p-13f) << factor;
  }
}

// The gradient of h is 2 * factor.
TEST(ExecutorLossScaleTest, AnOverflowIsNamedAndTheNextStepIsGood) {
  const TrainingModel model = MakeTrainingModel(
      "(float[N,1] x, float[1,1] w_a, float[1,1] w_b) => (float[N,1] y)", "",
      "h = MatMul(x, w_a)\n y = MatMul(h, w_b)");
  const auto executor = Scaled(model, LossSpec::MEAN_SQUARED_ERROR, 2,
                               DType::kFloat16, /*micro_batches=*/2);
  ASSERT_NE(executor, nullptr);
  executor->parameter(0)[0] = executor->parameter(1)[0] = 1;
  Batch batch;
  batch.size = 2;
  batch.label_width = 1;
  batch.feeds = {{1, 1}};
  batch.labels = {0, 0};
  std::vector<int> heard;
  executor->UseLossScale(32768);
  auto result =
      executor->TrainStep(batch, 0, [&](int i) { heard.push_back(i); });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->overflow, "element 0 of 'w_a'");
  EXPECT_FALSE(std::isfinite(executor->gradient(0)[0]));
  EXPECT_THAT(heard, ::testing::ElementsAre(1, 0));
  executor->UseLossScale(16384);
  result = executor->TrainStep(batch, 1, Ignore);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->overflow, "");
  EXPECT_EQ(executor->gradient(0)[0], 4);
  EXPECT_EQ(executor->gradient(1)[0], 4);
}

}  // namespace
}  // namespace syncline::worker
