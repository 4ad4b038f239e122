// Goal: a job of 16 bits trains about as one of float32 does, the same bits for
// any number of ps; a gradient that overflows in float16 skips its step on all
// workers or on its own, and lowers the scale until it fits.
// Method: ps and workers in this process, real gRPC between them; a perceptron,
// a convolutional net with batch normalisation, a small transformer and an
// embedding table; a model of two weights whose every number is known.

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/zoo/zoo.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/training_cluster.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class MixedPrecisionTest : public ::testing::Test {
 protected:
  std::unique_ptr<TrainingCluster> MakeCluster(uint32_t workers, uint32_t ps) {
    return std::make_unique<TrainingCluster>(TrainingCluster::Options{
        .workers = workers,
        .ps = ps,
        .work_dir = dir_.File(absl::StrCat("c", ++clusters_)),
        .data_root = dir_.path()});
  }
  TrainingCluster::Outcome Train(uint32_t workers, uint32_t ps, JobSpec spec,
                                 absl::string_view model) {
    auto outcome = MakeCluster(workers, ps)->RunJob(std::move(spec), model);
    EXPECT_EQ(outcome.status, absl::OkStatus());
    return outcome;
  }
  // In both types: the loss after training is within `distance` of that in
  // float32, and the bits are those of any number of ps.
  void ExpectNearFloat32(JobSpec spec, absl::string_view model,
                         double distance) {
    const auto whole = Train(2, 1, spec, model);
    ASSERT_FALSE(whole.evaluations.empty());
    for (const Precision precision : {BFLOAT16, FLOAT16}) {
      SCOPED_TRACE(Precision_Name(precision));
      spec.set_precision(precision);
      const auto one = Train(2, 1, spec, model);
      const auto three = Train(2, 3, spec, model);
      ASSERT_FALSE(one.evaluations.empty());
      EXPECT_NEAR(one.evaluations.back().loss(),
                  whole.evaluations.back().loss(), distance);
      EXPECT_NE(one.weights, whole.weights) << "nothing was rounded";
      EXPECT_EQ(one.weights, three.weights) << "bit for bit";
      EXPECT_EQ(three.evaluations.back().loss(), one.evaluations.back().loss());
      EXPECT_EQ(one.last_progress.loss_scale() > 0, precision == FLOAT16);
      EXPECT_EQ(one.last_progress.loss_scale(),
                three.last_progress.loss_scale());
    }
  }

  TempDir dir_;
  int clusters_ = 0;
};

JobSpec Digits() {
  JobSpec spec = DigitsJob();
  spec.mutable_data()->mutable_train()->mutable_digits()->set_count(960);
  spec.mutable_data()->mutable_test()->mutable_digits()->set_count(300);
  spec.mutable_data()->mutable_test()->mutable_digits()->set_seed(2);
  spec.add_metrics(ACCURACY);
  spec.mutable_training()->set_epochs(2);
  spec.mutable_limits()->set_step_timeout_seconds(20);
  return spec;
}

TEST_F(MixedPrecisionTest, APerceptronIsNearFloat32) {
  ExpectNearFloat32(Digits(), MlpModel(784, 32, 10), 0.02);
}

void Initialize(const char* pattern, float value, JobSpec* spec) {
  InitializerRule* const rule = spec->mutable_model()->add_initialize();
  rule->set_pattern(pattern);
  rule->set_scheme(InitializerRule::CONSTANT);
  rule->set_value(value);
}

constexpr char kConvolutions[] = R"(
<
  ir_version: 8,
  opset_import: ["" : 15]
>
normalised (
  float[N, 28, 28] x,
  float[4, 1, 5, 5] w1, float[4] scale1, float[4] b1, float[4] mean1,
  float[4] variance1, float[784, 10] w2, float[10] b2
) => (float[N, 10] logits)
<int64[1] one = {1}>
{
  image = Unsqueeze (x, one)
  sum1 = Conv <strides = [2, 2], pads = [2, 2, 2, 2]> (image, w1)
  normal1 = BatchNormalization (sum1, scale1, b1, mean1, variance1)
  hidden1 = Relu (normal1)
  flat = Flatten <axis = 1> (hidden1)
  logits = Gemm (flat, w2, b2)
})";

// With the statistics of each worker's own batch, and with those of all.
TEST_F(MixedPrecisionTest, ConvolutionsAndBatchNormalizationAreNearFloat32) {
  JobSpec spec = Digits();
  Initialize("mean*", 0, &spec);
  Initialize("variance*", 1, &spec);
  Initialize("scale*", 1, &spec);
  for (const bool sync : {false, true}) {
    SCOPED_TRACE(sync);
    spec.mutable_training()->set_sync_batch_statistics(sync);
    ExpectNearFloat32(spec, kConvolutions, 0.05);
  }
}

TEST_F(MixedPrecisionTest, ATransformerIsNearFloat32) {
  const auto model = WriteZooModel("gpt", {{"layers", "2"},
                                           {"width", "16"},
                                           {"heads", "2"},
                                           {"length", "8"},
                                           {"vocabulary", "128"},
                                           {"seed", "3"}});
  ASSERT_TRUE(model.ok()) << model.status();
  std::string text;
  for (int i = 0; i < 400; ++i) text.push_back("abcdefgh"[i * i % 7]);
  while (text.size() < 4000) text += text.substr(0, 400);
  dir_.Write("text.txt", text);
  JobSpec spec = JobFromText(R"pb(
    name: "gpt"
    model { path: "gpt.onnx" }
    data {
      train { tokens { path: "text.txt" end: 0.9 } }
      test { tokens { path: "text.txt" begin: 0.9 } }
      feeds { input: "tokens" field: "tokens" }
      label { field: "next" }
    }
    loss { kind: SOFTMAX_CROSS_ENTROPY }
    optimizer { kind: ADAM }
    learning_rate { base: 0.003 }
    training { epochs: 2 batch_size: 8 seed: 7 threads: 1 micro_batches: 2 }
    limits { step_timeout_seconds: 20 }
  )pb");
  // Faster, and a rounding decides when the loss falls from here.
  ExpectNearFloat32(spec, *model, 0.05);
}

// --- Overflow ---

// Scale 2^24 / 32 times gradients of activations of about 0.1: it overflows.
TEST_F(MixedPrecisionTest, AScaleThatIsTooLargeFallsUntilItFits) {
  JobSpec spec = Digits();
  spec.set_precision(FLOAT16);
  spec.mutable_training()->set_epochs(4);
  const std::string model = MlpModel(784, 32, 10);
  const auto usual = Train(2, 2, spec, model);
  spec.mutable_loss_scale()->set_initial(16777216);
  const auto large = Train(2, 2, spec, model);
  const WorkerProgress& progress = large.last_progress;
  EXPECT_GT(progress.overflowed_steps(), 0u);
  EXPECT_LT(progress.overflowed_steps(), 20u);
  EXPECT_EQ(
      progress.loss_scale(),
      std::ldexp(16777216.0, -static_cast<int>(progress.overflowed_steps())));
  EXPECT_NEAR(large.evaluations.back().loss(), usual.evaluations.back().loss(),
              0.3);
  EXPECT_THAT(large.artifacts.at("metrics.json"),
              HasSubstr(absl::StrCat("\"skipped_clocks\": \"",
                                     progress.overflowed_steps(), "\"")));
  EXPECT_THAT(
      large.artifacts.at("history.csv"),
      AllOf(HasSubstr("learning_rate,loss_scale\n"), HasSubstr(",16777216\n")));
  EXPECT_THAT(large.artifacts.at("logs/chief-0.log"),
              HasSubstr("its scaled gradient overflowed"));
}

// Each clock has one batch of each worker; all numbers are powers of two.
//   y = x * w1 * w2 = 1, of a target t: dy = 2 (y - t)
// Rank 0 has t = 0.5: 2 samples with dy = 1. Rank 1 has t = -1023, dy = 2048,
// which overflows in float16 as the gradient of h until scale / 2 is 16.
constexpr char kTwoWeights[] = R"(
<
  ir_version: 8,
  opset_import: ["" : 13]
>
two (float[N, 1] x, float[1, 1] w1, float[1, 1] w2) => (float[N, 1] y)
{
  h = MatMul (x, w1)
  y = MatMul (h, w2)
})";

class TwoWeightsTest : public MixedPrecisionTest {
 protected:
  TwoWeightsTest() {
    dir_.Write("samples.csv", "1,0.5\n1,0.5\n1,-1023\n1,-1023\n");
  }
  static JobSpec Spec(uint32_t clocks) {
    JobSpec spec = JobFromText(R"pb(
      name: "two"
      model {
        path: "two.onnxtxt"
        initialize { pattern: "w*" scheme: CONSTANT value: 1 }
      }
      data {
        train { csv { path: "samples.csv" } }
        feeds { input: "x" field: "0" }
        label { field: "1" }
        shuffle: false
      }
      loss { kind: MEAN_SQUARED_ERROR }
      optimizer { kind: SGD }
      learning_rate { base: 0.0009765625 }
      precision: FLOAT16
      training { batch_size: 2 seed: 7 threads: 1 }
      limits { step_timeout_seconds: 20 }
    )pb");
    spec.mutable_training()->set_epochs(clocks);
    return spec;
  }
  static WorkerProgress LastProgress(TrainingCluster& cluster, uint32_t rank) {
    WorkerProgress last;
    for (const DaemonMessage& message : cluster.Messages(rank)) {
      if (message.report().has_progress()) last = message.report().progress();
    }
    return last;
  }
  // Runs the job with two workers, who then have their scales in `scales`.
  TrainingCluster::Outcome Run(const JobSpec& spec, uint32_t ps,
                               std::vector<WorkerProgress>* progress) {
    const auto cluster = MakeCluster(2, ps);
    auto outcome = cluster->RunJob(spec, kTwoWeights);
    *progress = {LastProgress(*cluster, 0), LastProgress(*cluster, 1)};
    return outcome;
  }
};

// 65,536 / 2^11 is 32, whose step is the only one that counts: the mean
// gradient is (2 * 1 + 2 * 2048) / 4 = 1024.5 of both weights.
constexpr float kTrained = 1 - 1024.5f / 1024;

TEST_F(TwoWeightsTest, OneWorkersOverflowSkipsTheClockAndAllAgree) {
  for (const uint32_t ps : {1u, 2u}) {
    std::vector<WorkerProgress> progress;
    const auto outcome = Run(Spec(12), ps, &progress);
    ASSERT_EQ(outcome.status, absl::OkStatus());
    for (const WorkerProgress& worker : progress) {
      EXPECT_EQ(worker.loss_scale(), 32);
      EXPECT_EQ(worker.overflowed_steps(), 11u);
    }
    EXPECT_EQ(outcome.weights.at("w1")[0], kTrained);
    EXPECT_EQ(outcome.weights.at("w2")[0], kTrained);
  }
}

TEST_F(TwoWeightsTest, HysteresisSkipsAndDoesNotLower) {
  JobSpec spec = Spec(14);
  spec.mutable_loss_scale()->set_hysteresis(3);
  std::vector<WorkerProgress> progress;
  const auto outcome = Run(spec, 1, &progress);
  ASSERT_EQ(outcome.status, absl::OkStatus());
  EXPECT_EQ(progress[0].loss_scale(), 32);
  EXPECT_EQ(progress[1].loss_scale(), 32);
  EXPECT_EQ(progress[0].overflowed_steps(), 13u);
  EXPECT_EQ(outcome.weights.at("w1")[0], kTrained);
}

TEST_F(TwoWeightsTest, AtTheSmallestScaleTheJobsPolicyDecides) {
  JobSpec spec = Spec(14);
  spec.mutable_loss_scale()->set_minimum(64);
  std::vector<WorkerProgress> progress;
  const auto failed = Run(spec, 2, &progress);
  EXPECT_EQ(failed.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(failed.status.message()),
              AllOf(HasSubstr("step at clock 10: the gradient (element 0 of "
                              "'w1') is not finite at the smallest loss scale, "
                              "64"),
                    HasSubstr("worker:0")));
  spec.set_non_finite(SKIP_STEP);
  const auto skipped = Run(spec, 2, &progress);
  ASSERT_EQ(skipped.status, absl::OkStatus());
  EXPECT_EQ(progress[0].loss_scale(), 64);
  EXPECT_EQ(progress[1].loss_scale(), 64);
  EXPECT_EQ(progress[1].overflowed_steps(), 13u);  // but for the last one
  EXPECT_EQ(skipped.weights.at("w1")[0], 1);
}

// The pushes of a worker are left out as long as they overflow; the other one
// trains, and its scale stays.
TEST_F(TwoWeightsTest, InAsyncEachWorkerHasItsOwnScale) {
  JobSpec spec = Spec(14);
  spec.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  std::vector<WorkerProgress> progress;
  const auto outcome = Run(spec, 2, &progress);
  ASSERT_EQ(outcome.status, absl::OkStatus());
  EXPECT_EQ(progress[0].loss_scale(), 65536);
  EXPECT_EQ(progress[0].overflowed_steps(), 0u);
  EXPECT_LE(progress[1].loss_scale(), 64);
  EXPECT_GE(progress[1].overflowed_steps(), 10u);
}

// 512 / 2 is 256: 2048 * 256 is infinite, the job's policy is met at once.
TEST_F(TwoWeightsTest, AFixedScaleNeverChanges) {
  JobSpec spec = Spec(3);
  spec.mutable_loss_scale()->set_fixed(512);
  std::vector<WorkerProgress> progress;
  const auto failed = Run(spec, 2, &progress);
  EXPECT_EQ(failed.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(failed.status.message()),
              HasSubstr("the gradient of clock 0 is not finite: element 0 of "
                        "'w1', of worker:0"));
  spec.mutable_loss_scale()->set_fixed(32);
  spec.mutable_training()->set_epochs(1);
  const auto trained = Run(spec, 2, &progress);
  ASSERT_EQ(trained.status, absl::OkStatus());
  EXPECT_EQ(progress[0].loss_scale(), 32);
  EXPECT_EQ(trained.weights.at("w1")[0], kTrained);
}

// Nothing of it is a product, so all of it is float32, and a power of two
// changes no bit.
TEST_F(MixedPrecisionTest, RowsOfATableHaveTheirOwnGradients) {
  dir_.Write("rows.csv", "1,1,0\n2,2,1\n1,3,2\n1,1,0\n0.5,2,2\n1,4,1\n");
  JobSpec spec = JobFromText(R"pb(
    name: "rows"
    model {
      path: "rows.onnxtxt"
      initialize { pattern: "b" scheme: ZEROS }
    }
    data {
      train { csv { path: "rows.csv" } }
      feeds { input: "x" field: "0" }
      feeds { input: "id" field: "1" }
      label { field: "2" }
    }
    tables { name: "t" scheme: UNIFORM scale: 0.1 }
    loss { kind: SOFTMAX_CROSS_ENTROPY }
    optimizer { kind: SGD }
    learning_rate { base: 0.5 }
    training { epochs: 3 batch_size: 2 seed: 7 threads: 1 micro_batches: 2 }
    limits { step_timeout_seconds: 20 }
  )pb");
  const char model[] = R"(
<
  ir_version: 8,
  opset_import: ["" : 13]
>
rows (float[N, 1] x, int64[N] id, float[50, 3] t, float[3] b)
  => (float[N, 3] logits)
{
  row = Gather (t, id)
  scaled = Mul (x, row)
  logits = Add (scaled, b)
})";
  const auto whole = Train(2, 2, spec, model);
  spec.set_precision(FLOAT16);
  const auto scaled = Train(2, 2, spec, model);
  EXPECT_EQ(scaled.weights, whole.weights);
  EXPECT_EQ(scaled.last_progress.loss_scale(), 65536);
  spec.set_precision(BFLOAT16);
  EXPECT_EQ(Train(2, 2, spec, model).weights, whole.weights);
}

}  // namespace
}  // namespace syncline
