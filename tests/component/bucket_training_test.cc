// Goal: a job with samples of several lengths trains in buckets what it trains
// with all of them padded to the longest, with less padding, and the same for
// any number of ps, and of workers that share its batches.
// Method: ps and workers in this process, real gRPC between them, generated
// lists with skewed lengths, an LSTM that labels each position.

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/random.h"
#include "common/daemon/metrics.h"
#include "common/job/job_spec_validator.h"
#include "common/model/model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/profile.pb.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/training_cluster.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

constexpr int kVocabulary = 8;  // and token 8 for padding
constexpr int kLongest = 16;

constexpr char kModel[] = R"(
<ir_version: 8, opset_import: ["" : 13]>
tagger (
  int64[N, sequence] tokens, int64[N] length, float[9, 6] embedding,
  float[1, 32, 6] w_in, float[1, 32, 8] w_state, float[8, 3] w_out
) => (float[N, sequence, 3] scores)
<int64[1] direction = {1}>
{
  length32 = Cast <to = 6> (length)
  x = Gather (embedding, tokens)
  by_time = Transpose <perm = [1, 0, 2]> (x)
  states = LSTM <hidden_size = 8> (by_time, w_in, w_state, , length32)
  state = Squeeze (states, direction)
  by_sample = Transpose <perm = [1, 0, 2]> (state)
  scores = MatMul (by_sample, w_out)
})";

JobSpec MakeSpec() {
  return JobFromText(
      R"pb(
        name: "tagger"
        model {
          path: "model.onnxtxt"
          initialize { pattern: "*" scheme: UNIFORM scale: 0.5 }
        }
        data {
          train { csv { path: "train.csv" list_delimiter: "|" } }
          test { csv { path: "test.csv" list_delimiter: "|" } }
          feeds { input: "tokens" field: "0" padding: 8 }
          feeds { input: "length" field: "0#length" }
          label { field: "1" ignore: -1 }
          buckets {
            dimension: "sequence"
            lengths: [ 3, 6, 16 ]
          }
        }
        loss { kind: SOFTMAX_CROSS_ENTROPY }
        metrics: [ ACCURACY, LOG_LOSS ]
        optimizer { kind: SGD }
        learning_rate { base: 0.5 }
        consistency { mode: SYNC }
        training {
          epochs: 2
          batch_size: 8
          eval_batch_size: 7
          seed: 7
          threads: 1
        }
        limits { step_timeout_seconds: 20 }
      )pb");
}

// The label of a position is the sum of its token and the one before, modulo 3.
void WriteSample(uint64_t length, Random* random, std::ostream* file) {
  std::string tokens;
  std::string labels;
  uint64_t before = 0;
  for (uint64_t t = 0; t < length; ++t) {
    const uint64_t token = random->Below(kVocabulary);
    absl::StrAppend(&tokens, t > 0 ? "|" : "", token);
    absl::StrAppend(&labels, t > 0 ? "|" : "", (token + before) % 3);
    before = token;
  }
  *file << tokens << "," << labels << "\n";
}

void WriteSamples(const std::string& path, int count, uint64_t seed) {
  Random random(seed);
  std::ofstream file(path);
  for (int i = 0; i < count; ++i) {
    const uint64_t length =
        random.Below(4) > 0 ? 1 + random.Below(5) : 1 + random.Below(kLongest);
    WriteSample(length, &random, &file);
  }
}

// Batches of `size` samples of one bucket each, in turn.
void WriteBatches(const std::string& path, int count, int size) {
  constexpr uint64_t kShortest[] = {1, 4, 7, kLongest + 1};
  Random random(3);
  std::ofstream file(path);
  for (int i = 0; i < count * size; ++i) {
    const uint64_t* const bucket = &kShortest[i / size % 3];
    WriteSample(bucket[0] + random.Below(bucket[1] - bucket[0]), &random,
                &file);
  }
}

class BucketTrainingTest : public ::testing::Test {
 protected:
  BucketTrainingTest() {
    WriteSamples(dir_.File("train.csv"), 250, 1);
    WriteSamples(dir_.File("test.csv"), 60, 2);
  }
  TrainingCluster::Outcome Train(uint32_t workers, uint32_t ps,
                                 const JobSpec& spec,
                                 const std::string& model = kModel,
                                 MetricsRegistry* metrics = nullptr) {
    return TrainingCluster({.workers = workers,
                            .ps = ps,
                            .work_dir = dir_.File(absl::StrCat("c", ++runs_)),
                            .data_root = dir_.path(),
                            .chief_metrics = metrics})
        .RunJob(spec, model);
  }

  TempDir dir_;
  int runs_ = 0;
};

// The same job with every sample padded to the longest.
JobSpec Padded() {
  JobSpec spec = MakeSpec();
  spec.mutable_data()->clear_buckets();
  return spec;
}

std::string PaddedModel() {
  return absl::StrReplaceAll(kModel, {{"sequence", absl::StrCat(kLongest)}});
}

void ExpectNear(const Weights& a, const Weights& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, values] : a) {
    const auto other = b.find(name);
    ASSERT_NE(other, b.end()) << name;
    ASSERT_EQ(values.size(), other->second.size()) << name;
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(values[i], other->second[i], 1e-5) << name << "[" << i << "]";
    }
  }
}

TEST_F(BucketTrainingTest, LearnsEvaluatesAndExportsWithTheSymbol) {
  JobSpec spec = MakeSpec();
  spec.mutable_training()->set_epochs(8);
  const auto outcome = Train(2, 2, spec);
  ASSERT_EQ(outcome.status, absl::OkStatus());
  ASSERT_EQ(outcome.evaluations.size(), 8u);
  EXPECT_EQ(outcome.evaluations[0].samples(), 60u);
  EXPECT_GT(outcome.evaluations[7].accuracy(), 0.5) << "chance is 0.33";
  EXPECT_LT(outcome.evaluations[7].log_loss(),
            outcome.evaluations[0].log_loss());
  const std::string& trained = outcome.artifacts.at("trained.onnx");
  EXPECT_TRUE(Model::Parse(trained, "m", {}, {}, {"sequence", 5}).ok());
  EXPECT_THAT(std::string(Model::Parse(trained, "m").status().message()),
              HasSubstr("dimension 1 is open ('sequence')"));
}

TEST_F(BucketTrainingTest, SyncIsBitReproducibleWhateverTheNumberOfPs) {
  const auto reference = Train(2, 1, MakeSpec());
  ASSERT_EQ(reference.status, absl::OkStatus());
  for (const uint32_t ps : {1u, 3u}) {
    const auto outcome = Train(2, ps, MakeSpec());
    ASSERT_EQ(outcome.status, absl::OkStatus());
    EXPECT_EQ(outcome.weights, reference.weights) << "bit for bit";
  }
}

WorkerProgress LastProgress(TrainingCluster* cluster, uint32_t rank) {
  WorkerProgress last;
  for (const DaemonMessage& message : cluster->Messages(rank)) {
    if (message.report().has_progress()) last = message.report().progress();
  }
  return last;
}

// Short steps leave most workers without samples.
TEST_F(BucketTrainingTest, WorkersThatWaitForNobodyTakeTheSameSteps) {
  constexpr uint32_t kWorkers = 4;
  JobSpec alone = MakeSpec();
  alone.mutable_training()->set_batch_size(kWorkers * 16);
  const auto reference = Train(1, 1, alone);
  ASSERT_EQ(reference.status, absl::OkStatus());
  const int64_t clocks = reference.last_progress.clocks_total();
  for (const auto mode :
       {ConsistencySpec::BOUNDED_STALENESS, ConsistencySpec::ASYNC}) {
    JobSpec spec = MakeSpec();
    spec.mutable_consistency()->set_mode(mode);
    spec.mutable_training()->set_batch_size(16);
    TrainingCluster cluster(
        {.workers = kWorkers,
         .ps = 2,
         .work_dir = dir_.File(ConsistencySpec::Mode_Name(mode)),
         .data_root = dir_.path()});
    const auto outcome = cluster.RunJob(spec, kModel);
    ASSERT_EQ(outcome.status, absl::OkStatus());
    uint64_t samples = 0;
    for (uint32_t rank = 0; rank < kWorkers; ++rank) {
      const WorkerProgress last = LastProgress(&cluster, rank);
      EXPECT_EQ(last.clocks_total(), clocks);
      EXPECT_EQ(last.clock(), clocks);
      samples += last.samples();
    }
    EXPECT_EQ(samples, 2u * 250);
    ASSERT_EQ(outcome.evaluations.size(), 2u);
    EXPECT_LT(outcome.evaluations[1].loss(), outcome.evaluations[0].loss());
  }
}

// The same samples in each step: sums are only added up in another order.
TEST_F(BucketTrainingTest, WorkersThatShareABatchTrainTheSame) {
  JobSpec one = MakeSpec();
  one.mutable_training()->set_batch_size(24);
  const auto alone = Train(1, 1, one);
  const auto shared = Train(3, 1, MakeSpec());
  ASSERT_EQ(alone.status, absl::OkStatus());
  ASSERT_EQ(shared.status, absl::OkStatus());
  EXPECT_EQ(shared.last_progress.clocks_total(),
            alone.last_progress.clocks_total());
  ExpectNear(shared.weights, alone.weights);
}

TEST_F(BucketTrainingTest, PartsAndRecomputationTrainTheSame) {
  const auto whole = Train(1, 1, MakeSpec());
  JobSpec spec = MakeSpec();
  spec.mutable_training()->set_micro_batches(3);
  spec.mutable_training()->set_recompute_segments(2);
  const auto parts = Train(1, 1, spec);
  ASSERT_EQ(whole.status, absl::OkStatus());
  ASSERT_EQ(parts.status, absl::OkStatus());
  ExpectNear(parts.weights, whole.weights);
}

// In the file's order each batch is of one bucket, so that both take the same
// steps.
TEST_F(BucketTrainingTest, BucketsLearnWhatThePaddedLearn) {
  WriteBatches(dir_.File("train.csv"), 15, 8);
  JobSpec bucketed = MakeSpec();
  JobSpec padded = Padded();
  for (JobSpec* spec : {&bucketed, &padded}) {
    spec->mutable_data()->set_shuffle(false);
  }
  const auto with = Train(1, 1, bucketed);
  const auto without = Train(1, 1, padded, PaddedModel());
  ASSERT_EQ(with.status, absl::OkStatus());
  ASSERT_EQ(without.status, absl::OkStatus());
  EXPECT_EQ(with.last_progress.clocks_total(), 2 * 15);
  EXPECT_EQ(without.last_progress.clocks_total(), 2 * 15);
  ExpectNear(with.weights, without.weights);
}

// All lengths at once: one batch is the whole data set, so that both take the
// same steps.
TEST_F(BucketTrainingTest, PaddingChangesNothingThatIsLearned) {
  JobSpec bucketed = MakeSpec();
  bucketed.mutable_training()->set_batch_size(250);
  bucketed.mutable_data()->mutable_buckets()->clear_lengths();
  bucketed.mutable_data()->mutable_buckets()->add_lengths(kLongest);
  JobSpec padded = Padded();
  padded.mutable_training()->set_batch_size(250);
  const auto with = Train(1, 1, bucketed);
  const auto without = Train(1, 1, padded, PaddedModel());
  ASSERT_EQ(with.status, absl::OkStatus());
  ASSERT_EQ(without.status, absl::OkStatus());
  EXPECT_EQ(with.weights, without.weights) << "bit for bit";

  // The evaluation of these weights over three buckets equals the one over one.
  JobSpec three = MakeSpec();
  JobSpec one = Padded();
  for (JobSpec* spec : {&three, &one}) {
    spec->mutable_training()->set_max_clocks(1);
    spec->mutable_learning_rate()->set_base(1e-30f);
  }
  const auto evaluated = Train(1, 1, three);
  const auto reference = Train(1, 1, one, PaddedModel());
  ASSERT_EQ(evaluated.status, absl::OkStatus());
  ASSERT_EQ(reference.status, absl::OkStatus());
  const Evaluation& a = evaluated.evaluations[0];
  const Evaluation& b = reference.evaluations[0];
  EXPECT_EQ(a.samples(), b.samples());
  EXPECT_NEAR(a.loss(), b.loss(), 1e-6);
  EXPECT_NEAR(a.log_loss(), b.log_loss(), 1e-6);
  EXPECT_EQ(a.accuracy(), b.accuracy());
}

TEST_F(BucketTrainingTest, StepsOfAllLengthsAreRecorded) {
  TrainingCluster cluster(
      {.work_dir = dir_.File("profiled"), .data_root = dir_.path()});
  ASSERT_EQ(cluster.Prepare(MakeSpec(), kModel), absl::OkStatus());
  SchedulerMessage request;
  request.mutable_profile()->set_job_id("t-1");
  request.mutable_profile()->set_steps(1000);
  request.mutable_profile()->set_artifact("profile.pb");
  cluster.Send(0, request);
  cluster.Run();
  ASSERT_EQ(cluster.AwaitDone(absl::Seconds(60)), absl::OkStatus());
  ASSERT_EQ(cluster.Stop(absl::Seconds(30)), absl::OkStatus());
  const auto outcome = cluster.TakeOutcome();
  StepProfile profile;
  ASSERT_TRUE(profile.ParseFromString(outcome.artifacts.at("profile.pb")));
  EXPECT_EQ(profile.steps_size(), outcome.last_progress.clocks_total());
}

double Metric(const MetricsRegistry& metrics, absl::string_view name) {
  const std::string text = metrics.Render();
  const size_t at = text.find(absl::StrCat("\n", name, " "));
  EXPECT_NE(at, text.npos) << name;
  return at == text.npos ? 0 : std::stod(text.substr(at + name.size() + 2));
}

// A step that is recorded for it is left to a profile that is asked for.
TEST_F(BucketTrainingTest, ComputingIsCountedByItsParts) {
  MetricsRegistry metrics;
  ASSERT_EQ(Train(1, 1, MakeSpec(), kModel, &metrics).status, absl::OkStatus());
  const auto seconds = [&](const char* part) {
    return Metric(metrics,
                  absl::StrCat("syncline_worker_compute_seconds_total{part=\"",
                               part, "\"}"));
  };
  EXPECT_GT(seconds("forward"), 0);
  EXPECT_GT(seconds("backward"), 0);
  EXPECT_EQ(seconds("update"), 0) << "is the ps' work";
  EXPECT_LE(
      seconds("forward") + seconds("backward"),
      1.001 *
          Metric(metrics,
                 "syncline_worker_training_seconds_total{phase=\"compute\"}"));
}

TEST_F(BucketTrainingTest, LessIsPadded) {
  constexpr char kData[] =
      "syncline_worker_input_values_total{content=\"data\"}";
  constexpr char kPadding[] =
      "syncline_worker_input_values_total{content=\"padding\"}";
  MetricsRegistry with;
  MetricsRegistry without;
  const auto bucketed = Train(1, 1, MakeSpec(), kModel, &with);
  const auto padded = Train(1, 1, Padded(), PaddedModel(), &without);
  ASSERT_EQ(bucketed.status, absl::OkStatus());
  ASSERT_EQ(padded.status, absl::OkStatus());
  EXPECT_EQ(Metric(with, kData), Metric(without, kData));
  EXPECT_EQ(Metric(without, kData) + Metric(without, kPadding),
            2 * 250 * (kLongest + 1));
  EXPECT_LT(Metric(with, kPadding), Metric(without, kPadding) / 3);
  EXPECT_THAT(bucketed.artifacts.at("logs/chief-0.log"),
              HasSubstr("padding_fraction=0."));
}

TEST_F(BucketTrainingTest, ATableTrainsAsTheDenseEmbedding) {
  JobSpec dense = MakeSpec();
  dense.mutable_model()->mutable_initialize(0)->set_pattern("w_*");
  JobSpec sparse = dense;
  InitializerRule* const rule = dense.mutable_model()->add_initialize();
  rule->set_pattern("embedding");
  rule->set_scheme(InitializerRule::CONSTANT);
  rule->set_value(0.25f);
  TableSpec* const table = sparse.add_tables();
  table->set_name("embedding");
  table->set_scheme(InitializerRule::CONSTANT);
  table->set_value(0.25f);
  const auto of_dense = Train(2, 2, dense);
  const auto of_table = Train(2, 2, sparse);
  ASSERT_EQ(of_dense.status, absl::OkStatus());
  ASSERT_EQ(of_table.status, absl::OkStatus());
  // The row of padding, the last, was read as zeros.
  Weights expected = of_dense.weights;
  std::vector<float>& rows = expected.at("embedding");
  std::fill(rows.end() - static_cast<int64_t>(rows.size()) / (kVocabulary + 1),
            rows.end(), 0.0f);
  ExpectNear(of_table.weights, expected);
  EXPECT_NEAR(of_table.evaluations[1].loss(), of_dense.evaluations[1].loss(),
              1e-6);
}

TEST_F(BucketTrainingTest, WhatDoesNotFitIsNamed) {
  JobSpec spec = MakeSpec();
  spec.mutable_data()->mutable_buckets()->mutable_lengths()->RemoveLast();
  EXPECT_THAT(std::string(Train(1, 1, spec).status.message()),
              HasSubstr("values, expected at most 6 (column"));
  EXPECT_THAT(std::string(Train(1, 1, Padded()).status.message()),
              HasSubstr("dimension 1 is open ('sequence')"));
}

}  // namespace
}  // namespace syncline
