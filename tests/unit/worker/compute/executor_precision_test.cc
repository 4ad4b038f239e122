// Goal: a step in 16 bits is the step in float32 with roundings where they are
// said to be, and takes the memory of its types. Method: steps whose every
// number can be computed by hand, models against float32 within what 8 bits of
// precision allow, arenas of models whose least size is known. The graphs of
// executor_gradient_test.cc run in 16 bits there.

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/testing/training_model.h"
#include "tests/unit/worker/compute/executor_fixture.h"
#include "worker/compute/executor.h"

namespace syncline::worker {
namespace {

using testing::MakeTrainingModel;
using testing::TrainingModel;

// Half the distance between 1 and the next bfloat16.
constexpr float kHalfStep = 1.0f / 256;

SeededExecutor Narrow(const TrainingModel& model, LossSpec::Kind loss,
                      int64_t batch_size, DType type = DType::kBfloat16,
                      int64_t micro_batches = 1) {
  return SeededExecutor(model, loss, batch_size, micro_batches,
                        /*recompute_segments=*/1, /*threads=*/1,
                        /*statistics=*/nullptr, /*device=*/nullptr, type);
}

void Fill(SeededExecutor& trainer, int parameter,
          const std::vector<float>& values) {
  const auto to = trainer.executor().parameter(parameter);
  ASSERT_EQ(to.size(), values.size());
  std::copy(values.begin(), values.end(), to.begin());
}

Batch OneSample(std::vector<float> x, float label) {
  Batch batch;
  batch.size = 1;
  batch.label_width = 1;
  batch.feeds = {std::move(x)};
  batch.labels = {label};
  return batch;
}

TEST(ExecutorPrecisionTest, InputsOfAProductAreRoundedAndItsSumsAreNot) {
  SeededExecutor trainer = Narrow(
      MakeTrainingModel("(float[N,2] x, float[2,1] w_a) => (float[N,1] y)", "",
                        "y = MatMul(x, w_a)"),
      LossSpec::MEAN_SQUARED_ERROR, 1);
  // Ties: to 1 and to 1 + 4 half steps.
  Fill(trainer, 0, {1 + 3 * kHalfStep, 0.5f});
  // y = 1 * 1.015625 + 2 * 0.5, which has more than 8 bits.
  EXPECT_EQ(trainer.Step(OneSample({1 + kHalfStep, 2}, 1)),
            1.015625 * 1.015625);
  EXPECT_EQ(trainer.Gradients()[0], (std::vector<float>{2.03125f, 4.0625f}));
  // The master is as it was.
  EXPECT_EQ(trainer.executor().parameter(0)[0], 1 + 3 * kHalfStep);
}

TEST(ExecutorPrecisionTest, ActivationsAndTheirGradientsAreRounded) {
  SeededExecutor trainer =
      Narrow(MakeTrainingModel("(float[N,2] x, float[2,1] w_a, float[1,1] w_b) "
                               "=> (float[N,1] y)",
                               "", "h = MatMul(x, w_a)\n y = MatMul(h, w_b)"),
             LossSpec::MEAN_SQUARED_ERROR, 1);
  Fill(trainer, 0, {1, kHalfStep});  // h = 1 + kHalfStep, rounded to 1
  Fill(trainer, 1, {1 + 2 * kHalfStep});
  const float y = 1 + 2 * kHalfStep;
  const float dy = 1 + 2 * kHalfStep;
  // The gradient of h is dy * w_b = 1 + 2^-6 + 2^-14, rounded to 1 + 2^-6.
  EXPECT_EQ(trainer.Step(OneSample({1, 1}, y - dy / 2)), dy * dy / 4);
  EXPECT_EQ(trainer.Gradients()[0], (std::vector<float>{1.015625f, 1.015625f}));
  EXPECT_EQ(trainer.Gradients()[1], (std::vector<float>{dy}));
}

// Parts of a batch, and readers of one parameter, add up in float32.
TEST(ExecutorPrecisionTest, GradientsOfParametersAreSumsInFloat32) {
  SeededExecutor trainer = Narrow(
      MakeTrainingModel("(float[N,1] x, float[1,1] w_a) => (float[N,1] y)", "",
                        "y = MatMul(x, w_a)"),
      LossSpec::MEAN_SQUARED_ERROR, 2, DType::kBfloat16,
      /*micro_batches=*/2);
  Fill(trainer, 0, {1});
  Batch batch = OneSample({1, kHalfStep}, 0.5f);
  batch.size = 2;
  batch.labels.push_back(kHalfStep - 0.5f);
  trainer.Step(batch);  // dy is 1 for both
  EXPECT_EQ(trainer.Gradients()[0], (std::vector<float>{1 + kHalfStep}));
}

TEST(ExecutorPrecisionTest, Float16OverflowsWhereItIsRounded) {
  SeededExecutor trainer = Narrow(
      MakeTrainingModel("(float[N,1] x, float[1,1] w_a) => (float[N,1] y)", "",
                        "y = MatMul(x, w_a)"),
      LossSpec::MEAN_SQUARED_ERROR, 1, DType::kFloat16);
  Fill(trainer, 0, {65520});
  const auto result =
      trainer.executor().TrainStep(OneSample({1}, 0), 3, Ignore);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(result.status().message()),
              ::testing::HasSubstr("node \"w_a in float16\" (CastTo16Bits) "
                                   "output \"w_a in float16\" is inf"));
}

// The distance of two steps' gradients, as a part of the gradients' norm.
double Distance(const std::vector<std::vector<float>>& got,
                const std::vector<std::vector<float>>& want) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    for (size_t j = 0; j < want[i].size(); ++j) {
      difference += std::pow(got[i][j] - want[i][j], 2);
      norm += std::pow(want[i][j], 2);
    }
  }
  return std::sqrt(difference / norm);
}

// Every rounding is off by 2^-8 of a number at most, and a value of these
// models has passed through fewer than 16 of them, whose sum no step amplifies.
void ExpectNearFloat32(const TrainingModel& model, LossSpec::Kind loss) {
  SeededExecutor whole(model, loss, 16);
  const Batch batch = whole.MakeBatch(16);
  const double want = whole.Step(batch);
  const auto gradients = whole.Gradients();
  double distances[2];
  int k = 0;
  for (const DType type : {DType::kBfloat16, DType::kFloat16}) {
    const double unit = type == DType::kBfloat16 ? 1.0 / 256 : 1.0 / 2048;
    SeededExecutor narrow = Narrow(model, loss, 16, type);
    const double got = narrow.Step(batch);
    EXPECT_NE(got, want);  // it is not float32 after all
    EXPECT_NEAR(got, want, 16 * unit * std::fabs(want));
    distances[k] = Distance(narrow.Gradients(), gradients);
    EXPECT_LT(distances[k++], 16 * unit);
  }
  EXPECT_LT(distances[1], distances[0]);  // three bits more
}

TEST(ExecutorPrecisionTest, PerceptronIsNearFloat32) {
  ExpectNearFloat32(Mlp(), LossSpec::SOFTMAX_CROSS_ENTROPY);
}

TEST(ExecutorPrecisionTest, ConvolutionsAreNearFloat32) {
  ExpectNearFloat32(
      MakeTrainingModel(
          "(float[N,2,6,6] x, float[16,2,3,3] w_k, float[16] w_s, "
          "float[16] w_b, float[16] w_running_m, float[16] w_running_v, "
          "float[16,16,1,1] w_g, float[16,3] w_a) => (float[N,3] y)",
          "",
          "c = Conv(x, w_k)\n"
          "n = BatchNormalization(c, w_s, w_b, w_running_m, w_running_v)\n"
          "t = Tanh(n)\n"
          "m = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (t)\n"
          "g = Conv(m, w_g)\n s = Add(g, m)\n p = GlobalAveragePool(s)\n"
          "f = Flatten(p)\n y = MatMul(f, w_a)",
          15),
      LossSpec::SOFTMAX_CROSS_ENTROPY);
}

TEST(ExecutorPrecisionTest, AttentionIsNearFloat32) {
  ExpectNearFloat32(
      MakeTrainingModel(
          "(float[N,4,8] x, float[8] w_s, float[8] w_b, float[8,8] w_q, "
          "float[8,8] w_k, float[8,8] w_v, float[8,8] w_o, float[8,8] w_m) "
          "=> (float[N,4,8] y)",
          "",
          "n = LayerNormalization(x, w_s, w_b)\n q = MatMul(n, w_q)\n"
          "k = MatMul(n, w_k)\n v = MatMul(n, w_v)\n"
          "t = Transpose <perm = [0, 2, 1]> (k)\n s = MatMul(q, t)\n"
          "p = Softmax(s)\n o = MatMul(p, v)\n u = MatMul(o, w_o)\n"
          "r = Add(u, x)\n g = Tanh(r)\n y = MatMul(g, w_m)",
          17),
      LossSpec::MEAN_SQUARED_ERROR);
}

// Layers of 4 KiB a sample, forward and backward.
std::string Layers(int count) {
  std::string body = "h0 = MatMul(x, w_a)\n";
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&body, "t", i, " = Tanh(h", i, ")\n h", i + 1,
                    " = MatMul(t", i, ", w_a)\n");
  }
  return absl::StrCat(body, "y = ReduceMean <axes = [1]> (h", count, ")");
}

TEST(ExecutorPrecisionTest, ActivationsTakeHalfTheArena) {
  constexpr int kLayers = 20;
  constexpr int64_t kBatch = 2048;
  const TrainingModel model =
      MakeTrainingModel("(float[N,16] x, float[16,16] w_a) => (float[N,1] y)",
                        "", Layers(kLayers));
  SeededExecutor whole(model, LossSpec::MEAN_SQUARED_ERROR, kBatch);
  SeededExecutor narrow = Narrow(model, LossSpec::MEAN_SQUARED_ERROR, kBatch);
  // Tanh's outputs are kept; h and gradients come and go, x has a copy.
  const int64_t one = kBatch * 16 * sizeof(float);
  EXPECT_GE(whole.executor().arena_bytes(), kLayers * one);
  EXPECT_LE(whole.executor().arena_bytes(), (kLayers + 3) * one);
  EXPECT_GE(narrow.executor().arena_bytes(), kLayers * one / 2);
  // The copies in float32 around one operator, at most three of its arrays, and
  // the weight's copy in 16 bits.
  constexpr int64_t kSmall = 4096;
  EXPECT_LE(narrow.executor().arena_bytes(),
            (kLayers + 3) * one / 2 + 3 * one + kSmall);
}

// A plan, made before the job runs, tells the memory that the types take.
TEST(ExecutorPrecisionTest, ThePlanListsTensorsInTheirTypes) {
  const TrainingModel model = Mlp();
  Executor::Options options;
  options.loss.set_kind(LossSpec::SOFTMAX_CROSS_ENTROPY);
  options.batch_size = 64;
  options.precision = DType::kBfloat16;
  const auto plan = Executor::Plan(model.model, model.training, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto bytes_of = [&](const std::string& name) -> int64_t {
    for (const auto& tensor : plan->tensors) {
      if (tensor.name == name) return tensor.bytes;
    }
    return -1;
  };
  EXPECT_EQ(bytes_of("h"), 64 * 5 * 2);
  EXPECT_EQ(bytes_of("y"), 64 * 3 * 4);   // the loss reads it
  EXPECT_EQ(bytes_of("w_a"), 4 * 5 * 4);  // the master
  EXPECT_EQ(bytes_of("w_a in bfloat16"), 4 * 5 * 2);
  EXPECT_EQ(bytes_of("w_b in bfloat16"), -1);  // a bias is read as it is
}

}  // namespace
}  // namespace syncline::worker
