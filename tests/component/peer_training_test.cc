// Goal: jobs without ps end with the bits of jobs with ps: parameters,
// evaluations and what was skipped are the same for ALL_REDUCE, SHARDED and
// PARAMETER_SERVER, for any number of ranks, with 16 bits on the wire and with
// compressed gradients. Method: workers in this process,
// with two ps over real gRPC, and without ps over InProcessPeers; the files of
// trained weights are compared byte for byte.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/random.h"
#include "common/model/zoo/zoo.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/training_cluster.h"

namespace syncline {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::AllOf;
using ::testing::HasSubstr;

// With running statistics, of an image and of a vector.
constexpr char kNormalised[] = R"(
<ir_version: 8, opset_import: ["" : 15]>
normalised (
  float[N, 28, 28] x,
  float[4, 1, 5, 5] w1, float[4] scale1, float[4] b1, float[4] mean1,
  float[4] variance1, float[784, 24] w2, float[24] scale2, float[24] b2,
  float[24] mean2, float[24] variance2, float[24, 10] w3, float[10] b3
) => (float[N, 10] logits)
<int64[1] one = {1}>
{
  image = Unsqueeze (x, one)
  sum1 = Conv <strides = [2, 2], pads = [2, 2, 2, 2]> (image, w1)
  normal1 = BatchNormalization (sum1, scale1, b1, mean1, variance1)
  hidden1 = Tanh (normal1)
  flat = Flatten <axis = 1> (hidden1)
  sum2 = MatMul (flat, w2)
  normal2 = BatchNormalization <momentum = 0.5> (sum2, scale2, b2, mean2,
                                                 variance2)
  hidden2 = Tanh (normal2)
  logits = Gemm (hidden2, w3, b3)
})";

// Layers of about 1 MiB: in stage 3 of SHARDED each is a unit, and the two in
// the middle are gathered for forward and for backward.
constexpr char kDeep[] = R"(
<ir_version: 8, opset_import: ["" : 13]>
deep (
  float[N, 784] x, float[784, 400] w1, float[400] b1, float[400, 700] w2,
  float[700] b2, float[700, 400] w3, float[400] b3, float[400, 10] w4,
  float[10] b4
) => (float[N, 10] logits)
{
  sum1 = Gemm (x, w1, b1)
  hidden1 = Tanh (sum1)
  sum2 = Gemm (hidden1, w2, b2)
  hidden2 = Tanh (sum2)
  sum3 = Gemm (hidden2, w3, b3)
  hidden3 = Tanh (sum3)
  logits = Gemm (hidden3, w4, b4)
})";

void Initialize(const char* pattern, float value, JobSpec* spec) {
  InitializerRule* const rule = spec->mutable_model()->add_initialize();
  rule->set_pattern(pattern);
  rule->set_scheme(InitializerRule::CONSTANT);
  rule->set_value(value);
}

// The last step of an epoch has fewer samples: one rank has some, the others
// have none.
JobSpec Digits() {
  JobSpec spec = DigitsJob();
  spec.mutable_data()->mutable_train()->mutable_digits()->set_count(197);
  spec.mutable_data()->mutable_test()->mutable_digits()->set_count(50);
  spec.mutable_data()->mutable_test()->mutable_digits()->set_seed(2);
  spec.add_metrics(ACCURACY);
  spec.mutable_training()->set_epochs(2);
  spec.mutable_training()->set_batch_size(16);
  spec.mutable_learning_rate()->set_base(0.01f);
  spec.mutable_limits()->set_step_timeout_seconds(20);
  return spec;
}

JobSpec NormalisedDigits() {
  JobSpec spec = Digits();
  Initialize("mean*", 0, &spec);
  Initialize("variance*", 1, &spec);
  Initialize("scale*", 1, &spec);
  return spec;
}

class PeerTrainingTest : public ::testing::Test {
 protected:
  TrainingCluster::Outcome Train(uint32_t workers, Strategy strategy,
                                 JobSpec spec, const std::string& model) {
    spec.set_strategy(strategy);
    TrainingCluster cluster(
        {.workers = workers,
         .ps = strategy == PARAMETER_SERVER ? 2u : 0u,
         .work_dir = dir_.File(absl::StrCat("c", ++clusters_)),
         .data_root = dir_.path()});
    return cluster.RunJob(spec, model);
  }

  // Of all strategies that go with the wire type.
  void ExpectTheSame(const JobSpec& spec, const std::string& model,
                     std::vector<uint32_t> workers = {2, 3}) {
    for (const uint32_t count : workers) {
      const auto with_ps = Train(count, PARAMETER_SERVER, spec, model);
      ASSERT_EQ(with_ps.status, absl::OkStatus());
      std::vector<std::pair<Strategy, uint32_t>> all_without = {
          {ALL_REDUCE, 0}, {SHARDED, 1}, {SHARDED, 2}, {SHARDED, 3}};
      // Refused for stage 3.
      if (spec.precision() == FLOAT16) all_without.pop_back();
      for (const auto& [strategy, stage] : all_without) {
        SCOPED_TRACE(absl::StrCat(Strategy_Name(strategy), " ", stage, ", ",
                                  count, " workers"));
        JobSpec staged = spec;
        if (stage > 0) staged.mutable_sharding()->set_stage(stage);
        const auto without = Train(count, strategy, staged, model);
        ASSERT_EQ(without.status, absl::OkStatus());
        EXPECT_TRUE(without.artifacts.at("trained.safetensors") ==
                    with_ps.artifacts.at("trained.safetensors"))
            << "other bits; largest difference "
            << LargestDifference(without.weights, with_ps.weights);
        ASSERT_EQ(without.evaluations.size(), with_ps.evaluations.size());
        for (size_t e = 0; e < with_ps.evaluations.size(); ++e) {
          Evaluation ours = without.evaluations[e];
          Evaluation theirs = with_ps.evaluations[e];
          ours.clear_time();  // of day
          theirs.clear_time();
          EXPECT_TRUE(MessageDifferencer::Equals(ours, theirs))
              << ours.DebugString() << theirs.DebugString();
        }
      }
    }
  }

  TempDir dir_;
  int clusters_ = 0;
};

TEST_F(PeerTrainingTest, AnMlpWithEachOptimizer) {
  for (const char* const optimizer :
       {"kind: SGD weight_decay: 0.01", "kind: ADAM", "kind: ADAGRAD",
        "kind: LAMB clip_norm: 0.5", "kind: LAMB",
        "kind: MOMENTUM clip_norm: 0.5"}) {
    SCOPED_TRACE(optimizer);
    JobSpec spec = Digits();
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
        optimizer, spec.mutable_optimizer()));
    ExpectTheSame(spec, MlpModel(784, 32, 10),
                  {optimizer == std::string("kind: ADAM") ? 4u : 2u});
  }
}

TEST_F(PeerTrainingTest, ANetOfManyUnits) {
  for (const char* const optimizer :
       {"kind: ADAM", "kind: LAMB clip_norm: 1"}) {
    SCOPED_TRACE(optimizer);
    JobSpec spec = Digits();
    spec.mutable_optimizer()->Clear();
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
        optimizer, spec.mutable_optimizer()));
    ExpectTheSame(spec, kDeep,
                  {optimizer == std::string("kind: ADAM") ? 4u : 3u});
  }
}

TEST_F(PeerTrainingTest, ARateThatEndsWithTheJobAndMicroBatches) {
  JobSpec spec = Digits();
  spec.mutable_learning_rate()->set_schedule(LearningRateSpec::COSINE);
  spec.mutable_training()->set_micro_batches(4);
  ExpectTheSame(spec, MlpModel(784, 32, 10));
}

// A worker's share of a clock is larger than batch_size, and no multiple of it.
TEST_F(PeerTrainingTest, ASharedBatchInParts) {
  JobSpec spec = Digits();
  spec.mutable_training()->set_global_batch(5 * spec.training().batch_size() +
                                            1);
  ExpectTheSame(spec, MlpModel(784, 32, 10));
}

TEST_F(PeerTrainingTest, AConvolutionalNetWithBatchStatistics) {
  for (const bool sync : {false, true}) {
    SCOPED_TRACE(sync);
    JobSpec spec = NormalisedDigits();
    spec.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
    spec.mutable_training()->set_sync_batch_statistics(sync);
    ExpectTheSame(spec, kNormalised);
  }
}

// Not each rank has as many parts of the last batch as the others.
TEST_F(PeerTrainingTest, BatchStatisticsOfMicroBatches) {
  JobSpec spec = NormalisedDigits();
  spec.mutable_training()->set_sync_batch_statistics(true);
  spec.mutable_training()->set_micro_batches(4);
  ExpectTheSame(spec, kNormalised);
}

TEST_F(PeerTrainingTest, ASmallGpt) {
  const auto model = WriteZooModel("gpt", {{"layers", "2"},
                                           {"width", "16"},
                                           {"heads", "2"},
                                           {"length", "8"},
                                           {"vocabulary", "128"},
                                           {"seed", "3"}});
  ASSERT_TRUE(model.ok()) << model.status();
  std::string text;
  for (int i = 0; i < 1500; ++i) text.push_back("abcdefgh"[i * i % 7]);
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
    optimizer { kind: ADAMW clip_norm: 1 }
    learning_rate { base: 0.003 }
    training { epochs: 2 batch_size: 8 seed: 7 threads: 1 }
    limits { step_timeout_seconds: 20 }
  )pb");
  ExpectTheSame(spec, *model);
}

TEST_F(PeerTrainingTest, ScaledLosses) {
  JobSpec spec = Digits();
  spec.set_precision(FLOAT16);
  // It overflows, and falls until it does not.
  spec.mutable_loss_scale()->set_initial(16777216);
  ExpectTheSame(spec, MlpModel(784, 32, 10), {2});
}

// The chief evaluates and exports values that were never rounded, and makes the
// step behind an evaluation with those that it has read.
TEST_F(PeerTrainingTest, SixteenBitsOnTheWire) {
  for (const auto type : {WIRE_BFLOAT16, WIRE_FLOAT16}) {
    for (const char* const optimizer :
         {"kind: SGD", "kind: ADAM clip_norm: 0.5"}) {
      SCOPED_TRACE(absl::StrCat(WireType_Name(type), " ", optimizer));
      JobSpec spec = NormalisedDigits();
      spec.set_wire_type(type);
      ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
          optimizer, spec.mutable_optimizer()));
      ExpectTheSame(spec, kNormalised, {type == WIRE_BFLOAT16 ? 2u : 3u});
    }
  }
  JobSpec lamb = Digits();
  lamb.set_wire_type(WIRE_BFLOAT16);
  lamb.mutable_optimizer()->set_kind(OptimizerSpec::LAMB);
  ExpectTheSame(lamb, MlpModel(784, 32, 10), {1, 4});
  JobSpec scaled = Digits();
  scaled.set_wire_type(WIRE_BFLOAT16);
  scaled.set_precision(FLOAT16);
  scaled.mutable_loss_scale()->set_initial(16777216);
  ExpectTheSame(scaled, MlpModel(784, 32, 10), {2});
}

TEST_F(PeerTrainingTest, SixteenBitsRoundWhatIsTrainedAndNotTheModel) {
  JobSpec spec = Digits();
  spec.mutable_learning_rate()->set_base(1e-4f);
  const auto whole = Train(2, ALL_REDUCE, spec, MlpModel(784, 32, 10));
  ASSERT_EQ(whole.status, absl::OkStatus());
  spec.set_wire_type(WIRE_BFLOAT16);
  const auto rounded = Train(2, SHARDED, spec, MlpModel(784, 32, 10));
  ASSERT_EQ(rounded.status, absl::OkStatus());
  EXPECT_NE(rounded.weights, whole.weights) << "nothing was rounded";
  EXPECT_NEAR(rounded.evaluations[1].loss(), whole.evaluations[1].loss(), 0.02);
  int not_bfloat16 = 0;
  for (const auto& [name, values] : rounded.weights) {
    for (const float value : values) {
      not_bfloat16 += (std::bit_cast<uint32_t>(value) & 0xffff) != 0 ? 1 : 0;
    }
  }
  EXPECT_GT(not_bfloat16, 1000);
}

TEST_F(PeerTrainingTest, CompressedGradients) {
  struct Case {
    const char* job;
    uint32_t workers;
  };
  for (const Case& of :
       {Case{"optimizer { kind: ADAM } compression { kind: INT8 }", 3},
        Case{"optimizer { kind: LAMB } compression { kind: TOP_K fraction: 0.1 "
             "} wire_type: WIRE_BFLOAT16",
             2},
        Case{"optimizer { kind: MOMENTUM momentum: 0.5 } compression { kind: "
             "DGC fraction: 0.05 warmup_clocks: 5 } non_finite: SKIP_STEP",
             2},
        Case{"optimizer { kind: SGD } compression { kind: TERNGRAD }", 4}}) {
    SCOPED_TRACE(of.job);
    JobSpec spec = NormalisedDigits();
    JobSpec edit;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(of.job, &edit));
    spec.clear_optimizer();
    spec.MergeFrom(edit);
    ExpectTheSame(spec, kNormalised, {of.workers});
  }
}

// All ranks apply the sums that their owners have sent, whoever owns what, and
// learn as much.
TEST_F(PeerTrainingTest, CompressedSums) {
  JobSpec spec = NormalisedDigits();
  spec.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
  spec.mutable_compression()->set_kind(CompressionSpec::INT8);
  const auto whole = Train(3, ALL_REDUCE, spec, kNormalised);
  ASSERT_EQ(whole.status, absl::OkStatus());
  spec.mutable_compression()->set_values(true);
  const auto compressed = Train(3, ALL_REDUCE, spec, kNormalised);
  ASSERT_EQ(compressed.status, absl::OkStatus());
  EXPECT_NE(compressed.weights, whole.weights) << "nothing was compressed";
  EXPECT_EQ(compressed.weights,
            Train(3, ALL_REDUCE, spec, kNormalised).weights);
  ASSERT_EQ(compressed.evaluations.size(), whole.evaluations.size());
  EXPECT_NEAR(compressed.evaluations[1].loss(), whole.evaluations[1].loss(),
              0.02);
}

// Up to the end of the warm-up it is Adam, to the bit. Behind it moments travel
// in signs, and the job learns as much.
TEST_F(PeerTrainingTest, OneBitAdam) {
  for (const auto kind : {OptimizerSpec::ADAM, OptimizerSpec::ADAMW}) {
    JobSpec spec = NormalisedDigits();
    spec.mutable_training()->set_epochs(12);
    spec.mutable_optimizer()->set_kind(kind);
    spec.mutable_learning_rate()->set_base(0.003f);
    const auto whole = Train(3, ALL_REDUCE, spec, kNormalised);
    ASSERT_EQ(whole.status, absl::OkStatus());
    spec.mutable_compression()->set_kind(CompressionSpec::ONE_BIT_ADAM);
    spec.mutable_compression()->set_warmup_clocks(1000);
    EXPECT_EQ(Train(3, ALL_REDUCE, spec, kNormalised).weights, whole.weights);
    spec.mutable_compression()->set_warmup_clocks(15);
    const auto signs = Train(3, ALL_REDUCE, spec, kNormalised);
    ASSERT_EQ(signs.status, absl::OkStatus());
    EXPECT_NE(signs.weights, whole.weights) << "nothing was compressed";
    EXPECT_EQ(signs.weights, Train(3, ALL_REDUCE, spec, kNormalised).weights);
    ASSERT_EQ(signs.evaluations.size(), 12u);
    EXPECT_NEAR(signs.evaluations[11].loss(), whole.evaluations[11].loss(),
                0.05);
  }
}

// Each group of elements becomes its signs, times the mean of its magnitudes.
std::vector<double> SignsOf(const std::vector<double>& values, size_t group) {
  std::vector<double> signs(values.size());
  for (size_t first = 0; first < values.size(); first += group) {
    const size_t end = std::min(first + group, values.size());
    double scale = 0;
    for (size_t i = first; i < end; ++i) scale += std::abs(values[i]);
    scale /= static_cast<double>(end - first);
    for (size_t i = first; i < end; ++i) {
      signs[i] = values[i] < 0 ? -scale : scale;
    }
  }
  return signs;
}

// Tang et al. 2021, algorithm 1, of moments over the root of the second one, by
// two workers that fit a line, in float64. An input that is 0 throughout has a
// second moment of 0; one that is not 0 behind the warm-up alone has, too.
TEST_F(PeerTrainingTest, OneBitAdamFollowsItsDefinition) {
  constexpr size_t kInputs = 70;
  constexpr size_t kGroup = 32;
  constexpr int kSamples = 160;
  constexpr int kBatch = 8;
  constexpr int kWorkers = 2;
  constexpr int kClocks = 30;
  constexpr int kWarmup = 10;
  constexpr double kBeta1 = 0.9;
  constexpr double kBeta2 = 0.999;
  constexpr double kRate = 0.01;
  Random random(3);
  std::vector<std::vector<double>> x(kSamples);
  std::vector<double> y;
  std::string csv;
  for (size_t s = 0; s < x.size(); ++s) {
    std::vector<double>& sample = x[s];
    double sum = 0;
    for (size_t i = 0; i < kInputs; ++i) {
      const bool is_zero = i == 1 || (i == 2 && s < kBatch * kWorkers * 9);
      sample.push_back(is_zero ? 0 : std::round(random.Normal() * 64) / 64);
      sum += sample.back() * static_cast<double>(i % 5);
    }
    y.push_back(sum);
    absl::StrAppend(&csv, sum, ",", absl::StrJoin(sample, ","), "\n");
  }
  dir_.Write("line.csv", csv);
  const JobSpec spec = JobFromText(R"pb(
    name: "line"
    model {
      path: "line.onnxtxt"
      initialize { pattern: "w" scheme: ZEROS }
    }
    data {
      train { csv { path: "line.csv" } }
      feeds { input: "x" field: "1:71" }
      label { field: "0" }
      shuffle: false
    }
    loss { kind: MEAN_SQUARED_ERROR }
    optimizer { kind: ADAM }
    learning_rate { base: 0.01 }
    training { batch_size: 8 epochs: 3 }
    compression { kind: ONE_BIT_ADAM warmup_clocks: 10 block_elements: 32 }
  )pb");
  const auto trained = Train(kWorkers, ALL_REDUCE, spec, R"(
<ir_version: 8, opset_import: ["" : 13]>
line (float[N, 70] x, float[70, 1] w) => (float[N, 1] y) {
  y = MatMul (x, w)
})");
  ASSERT_EQ(trained.status, absl::OkStatus());

  std::vector<double> w(kInputs), m(kInputs), v(kInputs), lost_sum(kInputs);
  std::vector<std::vector<double>> lost(kWorkers, std::vector<double>(kInputs));
  const auto root = [&](size_t i) {
    return std::sqrt(v[i] / (1 - std::pow(kBeta2, kWarmup))) + 1e-8;
  };
  for (int clock = 0; clock < kClocks; ++clock) {
    const bool sends_moments = clock >= kWarmup;
    std::vector<double> sum(kInputs);
    for (int rank = 0; rank < kWorkers; ++rank) {
      std::vector<double> sent(kInputs);
      for (int s = 0; s < kBatch; ++s) {
        const auto at = static_cast<size_t>(
            ((clock * kWorkers + rank) * kBatch + s) % kSamples);
        double error = -y[at];
        for (size_t i = 0; i < kInputs; ++i) error += x[at][i] * w[i];
        for (size_t i = 0; i < kInputs; ++i) sent[i] += 2 * error * x[at][i];
      }
      if (sends_moments) {
        for (size_t i = 0; i < kInputs; ++i) {
          const double limit = root(i) * std::sqrt(kWorkers / (1 - kBeta2));
          const double mean = std::clamp(sent[i] / kBatch, -limit, limit);
          lost[rank][i] +=
              kBatch * (kBeta1 * m[i] + (1 - kBeta1) * mean) / root(i);
        }
        sent = SignsOf(lost[rank], kGroup);
        for (size_t i = 0; i < kInputs; ++i) lost[rank][i] -= sent[i];
      }
      for (size_t i = 0; i < kInputs; ++i) sum[i] += sent[i];
    }
    if (sends_moments) {
      for (size_t i = 0; i < kInputs; ++i) lost_sum[i] += sum[i];
      sum = SignsOf(lost_sum, kGroup);
      for (size_t i = 0; i < kInputs; ++i) lost_sum[i] -= sum[i];
    }
    const double first = 1 - std::pow(kBeta1, clock + 1);
    const double second = 1 - std::pow(kBeta2, clock + 1);
    for (size_t i = 0; i < kInputs; ++i) {
      const double mean = sum[i] / (kWorkers * kBatch);
      if (sends_moments) {
        m[i] = mean * root(i);
        w[i] -= kRate * mean / first;
        continue;
      }
      m[i] = kBeta1 * m[i] + (1 - kBeta1) * mean;
      v[i] = kBeta2 * v[i] + (1 - kBeta2) * mean * mean;
      w[i] -= kRate * m[i] / first / (std::sqrt(v[i] / second) + 1e-8);
    }
  }
  const std::vector<float>& ours = trained.weights.at("w");
  ASSERT_EQ(ours.size(), kInputs);
  for (size_t i = 0; i < kInputs; ++i) {
    EXPECT_NEAR(ours[i], w[i], 1e-5) << i;
  }
}

// Before it is compressed, each rank's gradient is clipped as a whole.
TEST_F(PeerTrainingTest, CompressedGradientsThatAreClipped) {
  JobSpec spec = Digits();
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "kind: MOMENTUM momentum: 0.5 clip_norm: 0.1", spec.mutable_optimizer()));
  spec.mutable_compression()->set_kind(CompressionSpec::DGC);
  const std::string model = MlpModel(784, 32, 10);
  const auto with_ps = Train(3, PARAMETER_SERVER, spec, model);
  ASSERT_EQ(with_ps.status, absl::OkStatus());
  for (const Strategy strategy : {ALL_REDUCE, SHARDED}) {
    const auto without = Train(3, strategy, spec, model);
    ASSERT_EQ(without.status, absl::OkStatus());
    EXPECT_EQ(without.weights, with_ps.weights) << Strategy_Name(strategy);
  }
  spec.mutable_optimizer()->set_clip_norm(1000);
  EXPECT_NE(Train(3, ALL_REDUCE, spec, model).weights, with_ps.weights)
      << "nothing was clipped";
}

// --- Gradients that are not finite ---

constexpr char kLogistic[] = R"(
<ir_version: 8, opset_import: ["" : 13]>
logistic (float[N, 2] x, float[2, 3] w, float[3] b) => (float[N, 3] logits)
{
  logits = Gemm (x, w, b)
})";

class PeerNonFiniteTest : public PeerTrainingTest {
 protected:
  // Rank 1's first gradient of `w` overflows; with "loss.csv" its loss does.
  PeerNonFiniteTest() {
    const std::string lines = "0.5,1,0\n-1,2,1\n0.25,-1,2\n1,1,0\n";
    dir_.Write("gradient.csv",
               absl::StrCat(lines, "3e38,0,0\n3e38,0,0\n",
                            "0.5,0.5,1\n-0.5,0.5,2\n", lines, lines));
    dir_.Write("loss.csv",
               absl::StrCat(lines, "3e38,3e38,0\n0,0,0\n",
                            "0.5,0.5,1\n-0.5,0.5,2\n", lines, lines));
  }
  JobSpec Spec(const std::string& data, NonFinitePolicy policy) {
    JobSpec spec = JobFromText(
        R"pb(
          name: "overflow"
          model {
            path: "model.onnxtxt"
            initialize { pattern: "w" scheme: CONSTANT value: 0.25 }
            initialize { pattern: "b" scheme: ZEROS }
          }
          data {
            train { csv {} }
            feeds { input: "x" field: "0:2" }
            label { field: "2" }
            shuffle: false
          }
          loss { kind: SOFTMAX_CROSS_ENTROPY }
          optimizer { kind: ADAM }
          learning_rate { base: 0.1 }
          training { epochs: 1 batch_size: 4 seed: 7 threads: 1 }
          limits { step_timeout_seconds: 20 }
        )pb");
    spec.mutable_data()->mutable_train()->mutable_csv()->set_path(data);
    spec.set_non_finite(policy);
    return spec;
  }
};

TEST_F(PeerNonFiniteTest, SkippedStepsAndDroppedBlocks) {
  for (const auto policy : {SKIP_STEP, DROP_BLOCK}) {
    for (const char* const data : {"gradient.csv", "loss.csv"}) {
      for (const float clip : {0.0f, 1.0f}) {
        SCOPED_TRACE(
            absl::StrCat(NonFinitePolicy_Name(policy), " ", data, " ", clip));
        JobSpec spec = Spec(data, policy);
        spec.mutable_optimizer()->set_clip_norm(clip);
        ExpectTheSame(spec, kLogistic, {2});
        const auto with_ps = Train(2, PARAMETER_SERVER, spec, kLogistic);
        const auto without = Train(2, SHARDED, spec, kLogistic);
        const auto counts = [](const TrainingCluster::Outcome& outcome) {
          const std::string& metrics = outcome.artifacts.at("metrics.json");
          std::string lines;
          for (const auto name : {"skipped_clocks", "dropped_blocks"}) {
            const size_t at = metrics.find(name);
            if (at == std::string::npos) continue;
            lines += metrics.substr(at, metrics.find('\n', at) - at);
          }
          return lines;
        };
        EXPECT_EQ(counts(without), counts(with_ps));
      }
    }
  }
}

// Finite until it is rounded: float16 ends at 65,504. Behind the first step,
// which is skipped, ranks have the rounded initial values.
TEST_F(PeerNonFiniteTest, WhatOverflowsTheWireIsNotFinite) {
  const std::string lines = "0.5,1,0\n-1,2,1\n0.25,-1,2\n1,1,0\n";
  const std::string over = "120000,0,0\n0,0,0\n0.5,0.5,1\n-0.5,0.5,2\n";
  // Of rank 1, and of the other one.
  dir_.Write("over.csv", absl::StrCat(lines, over, lines, lines, over, lines,
                                      lines, lines));
  for (const auto policy : {SKIP_STEP, DROP_BLOCK}) {
    SCOPED_TRACE(NonFinitePolicy_Name(policy));
    JobSpec spec = Spec("over.csv", policy);
    ASSERT_EQ(Train(2, ALL_REDUCE, spec, kLogistic).status, absl::OkStatus());
    spec.set_wire_type(WIRE_FLOAT16);
    ExpectTheSame(spec, kLogistic, {2});
    const auto outcome = Train(2, ALL_REDUCE, spec, kLogistic);
    ASSERT_EQ(outcome.status, absl::OkStatus());
    EXPECT_THAT(
        outcome.artifacts.at("metrics.json"),
        HasSubstr(policy == SKIP_STEP ? "skipped_clocks" : "dropped_blocks"));
  }
  JobSpec spec = Spec("over.csv", FAIL_JOB);
  EXPECT_EQ(Train(2, ALL_REDUCE, spec, kLogistic).status, absl::OkStatus());
  spec.set_wire_type(WIRE_FLOAT16);
  EXPECT_THAT(
      std::string(Train(2, ALL_REDUCE, spec, kLogistic).status.message()),
      AllOf(HasSubstr("the gradient of clock 0 is not finite: element "),
            HasSubstr("of 'w', of rank 1 (worker:1 at host-1:1)")));
}

TEST_F(PeerNonFiniteTest, AFailedJobNamesWorkerTensorAndClock) {
  for (const Strategy strategy : {ALL_REDUCE, SHARDED}) {
    const auto outcome =
        Train(2, strategy, Spec("gradient.csv", FAIL_JOB), kLogistic);
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kFailedPrecondition)
        << outcome.status;
    EXPECT_THAT(
        std::string(outcome.status.message()),
        AllOf(HasSubstr("the gradient of clock 0 is not finite: element "),
              HasSubstr("of 'w', of rank 1 (worker:1 at host-1:1)")));
  }
}

// Training goes on meanwhile, and the figures are the chief's.
TEST_F(PeerTrainingTest, AnEvaluatorEvaluatesWhatTheChiefWould) {
  JobSpec spec = NormalisedDigits();
  spec.mutable_training()->set_epochs(4);
  spec.mutable_training()->set_sync_batch_statistics(true);
  const auto evaluated = [&](Strategy strategy, bool evaluator,
                             uint32_t workers, uint32_t stage) {
    JobSpec job = spec;
    job.set_strategy(strategy);
    if (stage > 0) job.mutable_sharding()->set_stage(stage);
    TrainingCluster cluster(
        {.workers = workers,
         .ps = strategy == PARAMETER_SERVER ? 2u : 0u,
         .work_dir = dir_.File(absl::StrCat("c", ++clusters_)),
         .data_root = dir_.path(),
         .evaluator = evaluator,
         .on_evaluation = [](const Evaluation&) {
           absl::SleepFor(absl::Milliseconds(30));  // slower than training
         }});
    return cluster.RunJob(job, kNormalised);
  };
  for (const uint32_t workers : {1u, 3u}) {
    const auto by_chief = evaluated(ALL_REDUCE, false, workers, 0);
    ASSERT_EQ(by_chief.status, absl::OkStatus());
    const std::pair<Strategy, uint32_t> kAll[] = {
        {PARAMETER_SERVER, 0}, {ALL_REDUCE, 0}, {SHARDED, 1}, {SHARDED, 3}};
    for (const auto& [strategy, stage] : kAll) {
      SCOPED_TRACE(
          absl::StrCat(Strategy_Name(strategy), " ", stage, ", ", workers));
      const auto by_evaluator = evaluated(strategy, true, workers, stage);
      ASSERT_EQ(by_evaluator.status, absl::OkStatus());
      EXPECT_TRUE(by_evaluator.artifacts.at("trained.safetensors") ==
                  by_chief.artifacts.at("trained.safetensors"));
      ASSERT_EQ(by_evaluator.evaluations.size(), 4u);
      for (size_t e = 0; e < 4; ++e) {
        EXPECT_EQ(by_evaluator.evaluations[e].clock(),
                  by_chief.evaluations[e].clock());
        EXPECT_EQ(by_evaluator.evaluations[e].loss(),
                  by_chief.evaluations[e].loss());
      }
    }
  }
}

// It gets whole values, and the chief, which reads none then, trains on with
// rounded ones.
TEST_F(PeerTrainingTest, AnEvaluatorHasWholeValuesWith16BitsOnTheWire) {
  JobSpec spec = NormalisedDigits();
  spec.set_wire_type(WIRE_BFLOAT16);
  const auto evaluated = [&](Strategy strategy) {
    JobSpec job = spec;
    job.set_strategy(strategy);
    TrainingCluster cluster(
        {.workers = 2,
         .ps = strategy == PARAMETER_SERVER ? 2u : 0u,
         .work_dir = dir_.File(absl::StrCat("c", ++clusters_)),
         .data_root = dir_.path(),
         .evaluator = true});
    return cluster.RunJob(job, kNormalised);
  };
  const auto with_ps = evaluated(PARAMETER_SERVER);
  ASSERT_EQ(with_ps.status, absl::OkStatus());
  ASSERT_EQ(with_ps.evaluations.size(), 2u);
  // In stage 3 the chief is sent whole values, and trains on rounded ones.
  const std::pair<Strategy, uint32_t> kAllWithout[] = {
      {ALL_REDUCE, 0}, {SHARDED, 1}, {SHARDED, 3}};
  for (const auto& [strategy, stage] : kAllWithout) {
    SCOPED_TRACE(absl::StrCat(Strategy_Name(strategy), " ", stage));
    spec.clear_sharding();
    if (stage > 0) spec.mutable_sharding()->set_stage(stage);
    const auto without = evaluated(strategy);
    ASSERT_EQ(without.status, absl::OkStatus());
    EXPECT_TRUE(without.artifacts.at("trained.safetensors") ==
                with_ps.artifacts.at("trained.safetensors"));
    ASSERT_EQ(without.evaluations.size(), 2u);
    for (size_t e = 0; e < 2; ++e) {
      EXPECT_EQ(without.evaluations[e].loss(), with_ps.evaluations[e].loss());
    }
  }
}

TEST_F(PeerTrainingTest, OneWorkerTrainsAlone) {
  ExpectTheSame(Digits(), MlpModel(784, 32, 10), {1});
}

}  // namespace
}  // namespace syncline
