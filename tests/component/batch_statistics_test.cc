// Goal: with training.sync_batch_statistics, workers that share a batch train
// as one that has all of it, running means included, bit for bit the same for
// any number of ps; and a worker without a part in a fold delays no other.
// Method: ps and workers in this process, real gRPC between them, a small
// convolutional net with two batch normalisations on generated digits.

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/daemon/metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/profile.pb.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/training_cluster.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Key;

// Without a Relu, whose corner makes a large difference of a rounding.
constexpr char kModel[] = R"(
<
  ir_version: 8,
  opset_import: ["" : 15]
>
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

void Initialize(const char* pattern, InitializerRule::Scheme scheme,
                float value, JobSpec* spec) {
  InitializerRule* const rule = spec->mutable_model()->add_initialize();
  rule->set_pattern(pattern);
  rule->set_scheme(scheme);
  if (scheme == InitializerRule::CONSTANT) rule->set_value(value);
}

// 960 samples: two epochs are 20 steps of 96.
JobSpec Spec() {
  JobSpec spec = DigitsJob();
  Initialize("mean*", InitializerRule::ZEROS, 0, &spec);
  Initialize("variance*", InitializerRule::CONSTANT, 1, &spec);
  Initialize("scale*", InitializerRule::CONSTANT, 1, &spec);
  spec.mutable_data()->mutable_train()->mutable_digits()->set_count(960);
  spec.mutable_data()->mutable_test()->mutable_digits()->set_count(200);
  spec.mutable_data()->mutable_test()->mutable_digits()->set_seed(2);
  spec.add_metrics(ACCURACY);
  spec.mutable_training()->set_epochs(2);
  spec.mutable_training()->set_sync_batch_statistics(true);
  spec.mutable_limits()->set_step_timeout_seconds(20);
  return spec;
}

class BatchStatisticsTest : public ::testing::Test {
 protected:
  std::unique_ptr<TrainingCluster> MakeCluster(uint32_t workers, uint32_t ps) {
    return std::make_unique<TrainingCluster>(TrainingCluster::Options{
        .workers = workers,
        .ps = ps,
        .work_dir = dir_.File(absl::StrCat("c", ++clusters_)),
        .data_root = dir_.path()});
  }
  // The workers share batches of 96.
  TrainingCluster::Outcome Train(uint32_t workers, uint32_t ps, JobSpec spec) {
    spec.mutable_training()->set_batch_size(96 / workers);
    auto outcome = MakeCluster(workers, ps)->RunJob(spec, kModel);
    EXPECT_EQ(outcome.status, absl::OkStatus());
    return outcome;
  }

  TempDir dir_;
  int clusters_ = 0;
};

// Steps are under way, and reduce statistics, while the shards move.
TEST_F(BatchStatisticsTest, AJobGoesOnByALaterRouting) {
  JobSpec spec = Spec();
  spec.mutable_data()->mutable_train()->mutable_digits()->set_count(2400);
  spec.mutable_training()->set_epochs(1);
  spec.mutable_training()->set_batch_size(4);
  auto still = MakeCluster(2, 2)->RunJob(spec, kModel);
  ASSERT_EQ(still.status, absl::OkStatus());
  const auto cluster = MakeCluster(2, 2);
  ASSERT_EQ(cluster->Prepare(spec, kModel), absl::OkStatus());
  cluster->Run();
  Routing routing;
  routing.set_version(2);
  for (const uint32_t ps : {0, 1, 0}) routing.add_shard_ps(ps);
  ASSERT_EQ(cluster->ChangeRouting(routing, 20), absl::OkStatus());
  Routing elsewhere = routing;
  elsewhere.set_version(3);
  elsewhere.set_shard_ps(0, 1);
  const absl::Status moved = cluster->ChangeRouting(elsewhere, 40);
  EXPECT_EQ(moved.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(moved.message()),
              AllOf(HasSubstr("routing version 3 puts shard 0 on another ps"),
                    HasSubstr("training.sync_batch_statistics")));
  ASSERT_EQ(cluster->AwaitDone(absl::Minutes(2)), absl::OkStatus());
  ASSERT_EQ(cluster->Stop(absl::Seconds(30)), absl::OkStatus());
  EXPECT_EQ(cluster->TakeOutcome().weights, still.weights);
}

TEST_F(BatchStatisticsTest, WorkersFollowOneThatHasTheWholeBatch) {
  const auto one = Train(1, 1, Spec());
  ASSERT_EQ(one.evaluations.size(), 2u);
  JobSpec own = Spec();
  own.mutable_training()->set_sync_batch_statistics(false);
  for (const uint32_t workers : {2, 3}) {
    SCOPED_TRACE(workers);
    const auto folded = Train(workers, 2, Spec());
    ASSERT_EQ(folded.evaluations.size(), 2u);
    const double folded_error = LargestDifference(folded.weights, one.weights);
    const double own_error =
        LargestDifference(Train(workers, 2, own).weights, one.weights);
    std::cout << workers << " workers: off by " << folded_error << ", without "
              << "folding by " << own_error << std::endl;
    EXPECT_LT(folded_error, 5e-6);
    EXPECT_GT(own_error, 1e-2);
    for (const int epoch : {0, 1}) {
      EXPECT_NEAR(folded.evaluations[epoch].loss(),
                  one.evaluations[epoch].loss(), 1e-5);
    }
    for (const char* running : {"mean1", "variance1", "mean2", "variance2"}) {
      const auto& got = folded.weights.at(running);
      const auto& want = one.weights.at(running);
      for (size_t c = 0; c < want.size(); ++c) {
        EXPECT_NEAR(got[c], want[c], 5e-6f * std::max(1.0f, want[c]))
            << running << "[" << c << "]";
      }
    }
  }
}

TEST_F(BatchStatisticsTest, TheSameBitsAgainAndForAnyNumberOfPs) {
  const auto first = Train(3, 1, Spec());
  EXPECT_EQ(Train(3, 1, Spec()).weights, first.weights);
  EXPECT_EQ(Train(3, 2, Spec()).weights, first.weights);
  EXPECT_EQ(Train(3, 3, Spec()).weights, first.weights);
}

TEST_F(BatchStatisticsTest, OneWorkerTrainsAsWithoutTheOption) {
  JobSpec own = Spec();
  own.mutable_training()->set_sync_batch_statistics(false);
  EXPECT_EQ(Train(1, 1, Spec()).weights, Train(1, 1, own).weights);
}

// The last step has 20 samples, all of rank 0.
TEST_F(BatchStatisticsTest, WhoHasNoSamplesIsAbsent) {
  JobSpec spec = Spec();
  spec.mutable_data()->mutable_train()->mutable_digits()->set_count(980);
  EXPECT_LT(
      LargestDifference(Train(3, 2, spec).weights, Train(1, 1, spec).weights),
      5e-6);
}

// In the last step rank 0 has four parts, rank 1 two and rank 2 none.
TEST_F(BatchStatisticsTest, WhoHasFewerPartsLeavesEarlier) {
  JobSpec spec = Spec();
  spec.mutable_data()->mutable_train()->mutable_digits()->set_count(960 + 34);
  spec.mutable_training()->set_micro_batches(4);
  const auto parts = Train(3, 2, spec);
  EXPECT_GT(parts.evaluations.back().accuracy(), 0.3) << "chance is 0.1";
  spec.mutable_training()->set_recompute_segments(3);
  EXPECT_EQ(Train(3, 1, spec).weights, parts.weights) << "bit for bit";
}

// Rank 1 is alive, but is never told to run.
TEST_F(BatchStatisticsTest, AWorkerThatHangsIsNamed) {
  JobSpec spec = Spec();
  spec.mutable_limits()->set_step_timeout_seconds(2);
  const auto cluster = MakeCluster(2, 1);
  ASSERT_EQ(cluster->Prepare(spec, kModel), absl::OkStatus());
  SchedulerMessage run;
  run.mutable_run()->set_job_id("t-1");
  run.mutable_run()->set_attempt(kTestPass.attempt);
  cluster->Send(0, run);
  const absl::Status status = cluster->AwaitDone(absl::Seconds(30));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("FoldStatistics"), HasSubstr("clock 0, fold 0"),
                    HasSubstr("missing: worker:0 at ")));
  EXPECT_EQ(cluster->Stop(absl::Seconds(30)), absl::OkStatus());
}

// The waits for folds lie in the steps, and in nothing else.
TEST_F(BatchStatisticsTest, AProfileShowsTheWaits) {
  const auto cluster = MakeCluster(2, 1);
  JobSpec spec = Spec();
  spec.mutable_training()->set_max_clocks(8);
  ASSERT_EQ(cluster->Prepare(spec, kModel), absl::OkStatus());
  SchedulerMessage request;
  request.mutable_profile()->set_job_id("t-1");
  request.mutable_profile()->set_steps(4);
  request.mutable_profile()->set_artifact("profile.pb");
  cluster->Send(0, request);
  cluster->Run();
  EXPECT_EQ(cluster->AwaitDone(absl::Seconds(60)), absl::OkStatus());
  ASSERT_EQ(cluster->Stop(absl::Seconds(30)), absl::OkStatus());
  const auto outcome = cluster->TakeOutcome();
  ASSERT_THAT(outcome.artifacts, Contains(Key("profile.pb")));
  StepProfile profile;
  ASSERT_TRUE(profile.ParseFromString(outcome.artifacts.at("profile.pb")));
  ASSERT_EQ(profile.steps_size(), 4);
  int waits = 0;
  uint64_t end = 0;
  for (int i = 0; i < profile.interval_activity_size(); ++i) {
    waits += profile.activities(profile.interval_activity(i)).kind() ==
             StepProfile::WAIT;
    EXPECT_GE(profile.interval_begin_ns(i), end);
    end = profile.interval_begin_ns(i) + profile.interval_duration_ns(i);
  }
  // Two nodes, forward and backward, and what the ps are waited for.
  EXPECT_GE(waits, 4 * 4);
}

TEST_F(BatchStatisticsTest, AModelWithoutBatchNormalisationIsRefused) {
  const auto outcome = MakeCluster(2, 1)->RunJob(Spec(), MlpModel(784, 32, 10));
  EXPECT_THAT(std::string(outcome.status.message()),
              HasSubstr("training.sync_batch_statistics: no "
                        "BatchNormalization"));
}

constexpr char kRegression[] = R"(
<
  ir_version: 8,
  opset_import: ["" : 15]
>
regression (
  float[N, 2] x, float[2, 3] w, float[3] scale, float[3] b, float[3] mean,
  float[3] variance, float[3, 1] w2
) => (float[N, 1] y)
{
  sum = MatMul (x, w)
  normal = BatchNormalization (sum, scale, b, mean, variance)
  hidden = Tanh (normal)
  y = MatMul (hidden, w2)
})";

class AbandonedStepTest : public BatchStatisticsTest {
 protected:
  // Two workers with four samples each in two steps; the first sample of rank 1
  // is `bad`. If that is empty, of the second step alone.
  JobSpec Regression(const std::string& bad, NonFinitePolicy policy) {
    const std::string good = "0.5,1,0\n-1,2,1\n0.25,-1,2\n1,1,0\n";
    std::string samples =
        absl::StrCat(good, "1,1,1\n", "-1,0,1\n", "2,-1,2\n", "1,-2,0\n");
    if (!bad.empty()) {
      samples =
          absl::StrCat(good, bad, "\n-1,2,1\n0.25,-1,2\n1,1,0\n", samples);
    }
    dir_.Write("samples.csv", samples);
    JobSpec spec;
    spec.set_name("regression");
    spec.mutable_model()->set_path("regression.onnxtxt");
    Initialize("w*", InitializerRule::HE_NORMAL, 0, &spec);
    Initialize("b", InitializerRule::ZEROS, 0, &spec);
    Initialize("mean", InitializerRule::ZEROS, 0, &spec);
    Initialize("variance", InitializerRule::CONSTANT, 1, &spec);
    Initialize("scale", InitializerRule::CONSTANT, 1, &spec);
    DataSpec* const data = spec.mutable_data();
    data->mutable_train()->mutable_csv()->set_path("samples.csv");
    data->add_feeds()->set_input("x");
    data->mutable_feeds(0)->set_field("0:2");
    data->mutable_label()->set_field("2");
    data->set_shuffle(false);
    spec.mutable_loss()->set_kind(LossSpec::MEAN_SQUARED_ERROR);
    spec.mutable_optimizer()->set_kind(OptimizerSpec::SGD);
    spec.mutable_learning_rate()->set_base(0.1f);
    spec.set_non_finite(policy);
    TrainingSpec* const training = spec.mutable_training();
    training->set_epochs(1);
    training->set_batch_size(4);
    training->set_seed(7);
    training->set_threads(1);
    training->set_sync_batch_statistics(true);
    spec.mutable_limits()->set_step_timeout_seconds(20);
    return spec;
  }
  TrainingCluster::Outcome Run(const JobSpec& spec) {
    return MakeCluster(2, 2)->RunJob(spec, kRegression);
  }
};

constexpr char kBadInput[] = "3e38,3e38,0";
constexpr char kBadLabel[] = "0.5,1,3e38";  // the loss overflows, after a fold

TEST_F(AbandonedStepTest, KeepsNobodyWaiting) {
  for (const char* bad : {kBadInput, kBadLabel}) {
    for (const NonFinitePolicy policy : {SKIP_STEP, DROP_BLOCK}) {
      for (const uint32_t parts : {1, 2}) {
        SCOPED_TRACE(absl::StrCat(bad, " ", policy, " ", parts));
        JobSpec spec = Regression(bad, policy);
        spec.mutable_training()->set_micro_batches(parts);
        const auto outcome = Run(spec);
        ASSERT_EQ(outcome.status, absl::OkStatus());
        for (const auto& [name, values] : outcome.weights) {
          for (const float value : values) EXPECT_TRUE(std::isfinite(value));
        }
        JobSpec alone = Regression("", FAIL_JOB);
        alone.mutable_training()->set_micro_batches(parts);
        // A worker that has folded before the other's loss overflowed has a
        // gradient.
        const bool is_dropped = policy == DROP_BLOCK && bad == kBadLabel;
        EXPECT_EQ(outcome.weights == Run(alone).weights, !is_dropped);
      }
    }
  }
}

TEST_F(AbandonedStepTest, FailsTheJobWhereThePolicySaysSo) {
  const auto outcome = Run(Regression(kBadInput, FAIL_JOB));
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(outcome.status.message()),
              AllOf(HasSubstr("clock 0"), HasSubstr("BatchNormalization"),
                    HasSubstr("this worker's input is not: "),
                    HasSubstr("for sample 0 in the batch")));
}

// The chief ends the step even if the other worker reports nothing.
TEST_F(AbandonedStepTest, WhoIsNotToBlameSaysSoAtLast) {
  const auto cluster = MakeCluster(2, 1);
  ASSERT_EQ(cluster->Prepare(Regression(kBadInput, FAIL_JOB), kRegression),
            absl::OkStatus());
  cluster->Run();
  EXPECT_TRUE(Eventually(absl::Seconds(30), [&] {
    for (const DaemonMessage& message : cluster->Messages(0)) {
      if (message.has_done() &&
          absl::StrContains(message.done().message(),
                            "another worker's input is not")) {
        return true;
      }
    }
    return false;
  }));
  EXPECT_EQ(cluster->Stop(absl::Seconds(30)), absl::OkStatus());
}

// The root's slope is infinite where the first feature is 0, though the loss is
// finite there.
constexpr char kRoot[] = R"(
<
  ir_version: 8,
  opset_import: ["" : 15]
>
root (
  float[N, 2] x, float[2, 3] w, float[3] scale, float[3] b, float[3] mean,
  float[3] variance, float[3, 1] w2
) => (float[N, 1] y)
<int64[1] zero = {0}, int64[1] one = {1}>
{
  sum = MatMul (x, w)
  normal = BatchNormalization (sum, scale, b, mean, variance)
  hidden = MatMul (normal, w2)
  first = Slice (x, zero, one, one)
  product = Mul (hidden, first)
  size = Abs (product)
  y = Sqrt (size)
})";

TEST_F(AbandonedStepTest, WhoseGradientIsSpoiltSaysSo) {
  const auto outcome =
      MakeCluster(2, 1)->RunJob(Regression("0,1,0", DROP_BLOCK), kRoot);
  ASSERT_EQ(outcome.status, absl::OkStatus());
  for (const auto& [name, values] : outcome.weights) {
    for (const float value : values) EXPECT_TRUE(std::isfinite(value)) << name;
  }
  EXPECT_THAT(outcome.artifacts.at("logs/chief-0.log"),
              HasSubstr("another worker's gradient is not finite"));
}

TEST_F(AbandonedStepTest, CountsAtTheWorkerThatIsToBlame) {
  MetricsRegistry of_chief;
  TrainingCluster cluster({.workers = 2,
                           .ps = 1,
                           .work_dir = dir_.File("counted"),
                           .data_root = dir_.path(),
                           .chief_metrics = &of_chief});
  ASSERT_EQ(
      cluster.RunJob(Regression(kBadInput, SKIP_STEP), kRegression).status,
      absl::OkStatus());
  EXPECT_THAT(of_chief.Render(),
              HasSubstr("\nsyncline_worker_non_finite_total 0\n"));
}

}  // namespace
}  // namespace syncline
