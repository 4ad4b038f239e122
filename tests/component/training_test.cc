// Goal: workers and ps together train what the job says: the same parameters
// whatever the number of ps, and however many workers share a batch; and a job
// that cannot go on ends with a reason, never with a hang.
// Method: ps and workers in this process, real gRPC between them, generated
// digits, a small perceptron; the test plays the scheduler.

#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/job/job_spec_validator.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/profile.pb.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/training_cluster.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::SizeIs;

constexpr char kModel[] = R"(
<
  ir_version: 8,
  opset_import: ["" : 13]
>
mlp (
  float[N, 28, 28] image,
  float[784, 24] w1, float[24] b1,
  float[24, 10] w2, float[10] b2
) => (float[N, 10] logits)
{
  pixels = Flatten <axis = 1> (image)
  sum1 = Gemm (pixels, w1, b1)
  hidden = Relu (sum1)
  logits = Gemm (hidden, w2, b2)
})";

JobSpec DigitsSpec() {
  return JobFromText(
      R"pb(
        name: "digits"
        model {
          path: "model.onnxtxt"
          initialize { pattern: "w*" scheme: HE_UNIFORM }
          initialize { pattern: "b*" scheme: ZEROS }
        }
        data {
          train { digits { count: 960 seed: 1 } }
          test { digits { count: 300 seed: 2 } }
          feeds { input: "image" field: "image" scale: 0.00392156863 }
          label { field: "label" }
        }
        loss { kind: SOFTMAX_CROSS_ENTROPY }
        metrics: ACCURACY
        optimizer { kind: SGD }
        learning_rate { base: 0.1 }
        consistency { mode: SYNC }
        training { epochs: 2 batch_size: 32 seed: 7 threads: 1 }
        limits { step_timeout_seconds: 20 }
      )pb");
}

class TrainingTest : public ::testing::Test {
 protected:
  std::unique_ptr<TrainingCluster> MakeCluster(uint32_t workers, uint32_t ps) {
    return std::make_unique<TrainingCluster>(TrainingCluster::Options{
        .workers = workers,
        .ps = ps,
        .work_dir = dir_.File(absl::StrCat("c", ++clusters_)),
        .data_root = dir_.path()});
  }
  TrainingCluster::Outcome Train(uint32_t workers, uint32_t ps,
                                 const JobSpec& spec) {
    return MakeCluster(workers, ps)->RunJob(spec, kModel);
  }

  TempDir dir_;
  int clusters_ = 0;
};

TEST_F(TrainingTest, SyncTrainsEvaluatesAndExports) {
  const auto outcome = Train(3, 2, DigitsSpec());
  ASSERT_EQ(outcome.status, absl::OkStatus());
  ASSERT_EQ(outcome.evaluations.size(), 2u);
  EXPECT_EQ(outcome.evaluations[0].epoch(), 1u);
  EXPECT_EQ(outcome.evaluations[0].clock(), 10);
  EXPECT_FALSE(outcome.evaluations[0].final());
  EXPECT_EQ(outcome.evaluations[1].epoch(), 2u);
  EXPECT_EQ(outcome.evaluations[1].clock(), 20);
  EXPECT_TRUE(outcome.evaluations[1].final());
  EXPECT_EQ(outcome.evaluations[1].samples(), 300u);
  EXPECT_LT(outcome.evaluations[1].loss(), outcome.evaluations[0].loss());
  EXPECT_GT(outcome.evaluations[1].accuracy(), 0.3) << "chance is 0.1";
  EXPECT_THAT(outcome.weights, AllOf(SizeIs(4), Contains(Key("w1"))));
  EXPECT_THAT(
      outcome.artifacts,
      AllOf(Contains(Key("trained.onnx")), Contains(Key("trained.safetensors")),
            Contains(Key("metrics.json")), Contains(Key("logs/chief-0.log")),
            Contains(Key("logs/worker-0.log")),
            Contains(Key("logs/worker-1.log"))));
  EXPECT_THAT(outcome.artifacts.at("metrics.json"),
              AllOf(HasSubstr("\"accuracy\""), HasSubstr("\"samples\"")));
  EXPECT_EQ(outcome.last_progress.clock(), 20);
  EXPECT_EQ(outcome.last_progress.clocks_total(), 20);
  EXPECT_EQ(outcome.last_progress.samples(), 640u);
  EXPECT_GT(outcome.last_progress.compute_seconds(), 0);
  EXPECT_GT(outcome.last_progress.forward_seconds(), 0);
  EXPECT_GT(outcome.last_progress.backward_seconds(), 0);
  EXPECT_EQ(outcome.last_progress.update_seconds(), 0) << "the ps' work";
}

TEST_F(TrainingTest, SyncIsBitReproducibleWhateverTheNumberOfPs) {
  const auto reference = Train(3, 1, DigitsSpec());
  ASSERT_EQ(reference.status, absl::OkStatus());
  for (const uint32_t ps : {1u, 2u, 3u}) {
    SCOPED_TRACE(absl::StrCat("ps=", ps));
    const auto outcome = Train(3, ps, DigitsSpec());
    ASSERT_EQ(outcome.status, absl::OkStatus());
    EXPECT_EQ(outcome.weights, reference.weights) << "bit for bit";
  }
}

TEST_F(TrainingTest, ABatchInPartsTrainsTheSame) {
  JobSpec spec = DigitsSpec();
  const auto whole = Train(2, 2, spec);
  spec.mutable_training()->set_micro_batches(5);
  const auto parts = Train(2, 2, spec);
  ASSERT_EQ(whole.status, absl::OkStatus());
  ASSERT_EQ(parts.status, absl::OkStatus());
  // A clock is still the whole batch.
  EXPECT_EQ(parts.last_progress.clocks_total(), 30);
  EXPECT_EQ(parts.last_progress.samples(), whole.last_progress.samples());
  EXPECT_NE(parts.weights, whole.weights) << "the order of sums is another";
  EXPECT_LE(LargestDifference(parts.weights, whole.weights), 1e-5);
}

TEST_F(TrainingTest, RecomputedSegmentsTrainTheSameBits) {
  JobSpec spec = DigitsSpec();
  const auto plain = Train(2, 2, spec);
  spec.mutable_training()->set_recompute_segments(2);
  const auto recomputed = Train(2, 2, spec);
  ASSERT_EQ(plain.status, absl::OkStatus());
  ASSERT_EQ(recomputed.status, absl::OkStatus());
  EXPECT_EQ(recomputed.weights, plain.weights) << "bit for bit";
}

TEST_F(TrainingTest, ClippingByGlobalNormDoesNotDependOnTheNumberOfPs) {
  JobSpec spec = DigitsSpec();
  spec.mutable_optimizer()->set_clip_norm(0.3f);
  const auto one = Train(2, 1, spec);
  const auto three = Train(2, 3, spec);
  ASSERT_EQ(one.status, absl::OkStatus());
  ASSERT_EQ(three.status, absl::OkStatus());
  EXPECT_EQ(one.weights, three.weights);
  EXPECT_NE(one.weights, Train(2, 1, DigitsSpec()).weights)
      << "the norm must have been clipped";
}

TEST_F(TrainingTest, OptimizersTrainWhateverTheNumberOfPs) {
  for (const char* optimizer :
       {"kind: RMSPROP", "kind: RMSPROP momentum: 0.9 centered: true",
        "kind: FTRL", "kind: LAMB weight_decay: 0.01",
        "kind: LAMB weight_decay: 0.01 clip_norm: 0.3"}) {
    SCOPED_TRACE(optimizer);
    JobSpec spec = DigitsSpec();
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
        optimizer, spec.mutable_optimizer()));
    const bool rms_prop = spec.optimizer().kind() == OptimizerSpec::RMSPROP;
    spec.mutable_learning_rate()->set_base(rms_prop ? 0.001f : 0.03f);
    const auto one = Train(2, 1, spec);
    ASSERT_EQ(one.status, absl::OkStatus());
    EXPECT_GT(one.evaluations[1].accuracy(), 0.3) << "chance is 0.1";
    const auto three = Train(2, 3, spec);
    ASSERT_EQ(three.status, absl::OkStatus());
    EXPECT_EQ(one.weights, three.weights) << "bit for bit";
  }
}

TEST_F(TrainingTest, SixteenBitsOnTheWireTrainWhateverTheNumberOfPs) {
  const auto whole = Train(2, 2, DigitsSpec());
  ASSERT_EQ(whole.status, absl::OkStatus());
  for (const auto type : {WIRE_BFLOAT16, WIRE_FLOAT16}) {
    SCOPED_TRACE(WireType_Name(type));
    JobSpec spec = DigitsSpec();
    spec.set_wire_type(type);
    const auto one = Train(2, 1, spec);
    ASSERT_EQ(one.status, absl::OkStatus());
    EXPECT_NEAR(one.evaluations[1].loss(), whole.evaluations[1].loss(), 0.02);
    EXPECT_NE(one.weights, whole.weights) << "nothing was rounded";
    const auto three = Train(2, 3, spec);
    ASSERT_EQ(three.status, absl::OkStatus());
    EXPECT_EQ(one.weights, three.weights) << "bit for bit";
  }
}

// The servers' values are float32, and so is what is evaluated and exported: no
// weight moves by less than its own precision in 16 bits otherwise.
TEST_F(TrainingTest, SixteenBitsOnTheWireAreNotThoseOfTheModel) {
  JobSpec spec = DigitsSpec();
  spec.set_wire_type(WIRE_BFLOAT16);
  spec.mutable_learning_rate()->set_base(1e-4f);
  const auto outcome = Train(1, 1, spec);
  ASSERT_EQ(outcome.status, absl::OkStatus());
  int not_bfloat16 = 0;
  for (const float value : outcome.weights.at("w1")) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    not_bfloat16 += (bits & 0xffff) != 0;
  }
  EXPECT_GT(not_bfloat16, 1000);
}

TEST_F(TrainingTest, ThreeWorkersTimes32AreOneTimes96) {
  JobSpec three = DigitsSpec();
  three.mutable_training()->set_epochs(5);
  three.mutable_training()->set_max_clocks(50);
  JobSpec one = three;
  one.mutable_training()->set_batch_size(96);
  const auto outcome3 = Train(3, 2, three);
  const auto outcome1 = Train(1, 1, one);
  ASSERT_EQ(outcome3.status, absl::OkStatus());
  ASSERT_EQ(outcome1.status, absl::OkStatus());
  EXPECT_EQ(outcome3.evaluations.back().clock(), 50);
  EXPECT_LE(LargestDifference(outcome3.weights, outcome1.weights), 1e-5);
}

TEST_F(TrainingTest, AWorkerWithoutSamplesKeepsStepWithTheOthers) {
  JobSpec spec = DigitsSpec();
  // 10 full steps of 96, then one with 20 samples, all of rank 0.
  spec.mutable_data()->mutable_train()->mutable_digits()->set_count(980);
  JobSpec one = spec;
  one.mutable_training()->set_batch_size(96);
  const auto outcome3 = Train(3, 2, spec);
  const auto outcome1 = Train(1, 1, one);
  ASSERT_EQ(outcome3.status, absl::OkStatus());
  ASSERT_EQ(outcome1.status, absl::OkStatus());
  EXPECT_EQ(outcome3.evaluations.back().clock(), 22);
  EXPECT_LE(LargestDifference(outcome3.weights, outcome1.weights), 1e-5);
}

// The others wait for the chief's next step, and its evaluation takes several
// times as long as they wait for a worker that says nothing.
TEST_F(TrainingTest, AnEvaluationLongerThanTheStepTimeoutIsWaitedFor) {
  const std::string model =
      absl::StrReplaceAll(kModel, {{"784, 24", "784, 2048"}, {"[24", "[2048"}});
  for (const auto mode :
       {ConsistencySpec::SYNC, ConsistencySpec::BOUNDED_STALENESS}) {
    JobSpec spec = DigitsSpec();
    spec.mutable_consistency()->set_mode(mode);
    spec.mutable_data()->mutable_train()->mutable_digits()->set_count(128);
    spec.mutable_data()->mutable_test()->mutable_digits()->set_count(4000);
    spec.mutable_training()->set_eval_batch_size(1);
    spec.mutable_limits()->set_step_timeout_seconds(1);
    const auto outcome = MakeCluster(2, 1)->RunJob(spec, model);
    EXPECT_EQ(outcome.status, absl::OkStatus());
    EXPECT_EQ(outcome.evaluations.size(), 2u);
  }
}

TEST_F(TrainingTest, BoundedStalenessAndAsyncTrain) {
  for (const auto mode :
       {ConsistencySpec::BOUNDED_STALENESS, ConsistencySpec::ASYNC}) {
    SCOPED_TRACE(ConsistencySpec::Mode_Name(mode));
    JobSpec spec = DigitsSpec();
    spec.mutable_consistency()->set_mode(mode);
    if (mode == ConsistencySpec::BOUNDED_STALENESS) {
      spec.mutable_consistency()->set_staleness_bound(2);
    }
    spec.mutable_learning_rate()->set_base(0.05f);
    spec.mutable_optimizer()->set_clip_norm(5);
    const auto outcome = Train(3, 2, spec);
    ASSERT_EQ(outcome.status, absl::OkStatus());
    ASSERT_EQ(outcome.evaluations.size(), 2u);
    EXPECT_GT(outcome.evaluations[1].accuracy(), 0.3);
  }
}

// Batch normalisation as exporters write it for inference; its statistics are
// trained all the same.
constexpr char kNormalised[] = R"(
<
  ir_version: 8,
  opset_import: ["" : 15]
>
normalised (
  float[N, 28, 28] image,
  float[784, 24] w1, float[24, 10] w2, float[10] b2
) => (float[N, 10] logits)
<
  float[24] scale = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                     1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
  float[24] shift = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                     0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
  float[24] mean = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
  float[24] variance = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}
>
{
  pixels = Flatten <axis = 1> (image)
  sum1 = MatMul (pixels, w1)
  normal = BatchNormalization <momentum = 0.5> (sum1, scale, shift, mean,
                                                variance)
  hidden = Relu (normal)
  logits = Gemm (hidden, w2, b2)
})";

// Weights that hardly move, and all samples in each step: so is the mean, for
// any number of workers, whatever changes parameters besides. Variances are
// those within a worker's half.
TEST_F(TrainingTest, RunningStatisticsAreThoseOfTheBatches) {
  JobSpec spec = DigitsSpec();
  spec.mutable_learning_rate()->set_base(1e-12f);
  spec.mutable_optimizer()->set_weight_decay(0.1f);
  spec.mutable_optimizer()->set_clip_norm(0.1f);
  spec.mutable_training()->set_epochs(4);
  const auto train = [&](uint32_t workers, uint32_t ps) {
    spec.mutable_training()->set_batch_size(960 / workers);
    return MakeCluster(workers, ps)->RunJob(spec, kNormalised);
  };
  const auto one = train(1, 1);
  ASSERT_EQ(one.status, absl::OkStatus());
  const auto two = train(2, 2);
  ASSERT_EQ(two.status, absl::OkStatus());
  EXPECT_EQ(two.weights, train(2, 1).weights) << "bit for bit";
  for (int c = 0; c < 24; ++c) {
    EXPECT_EQ(two.weights.at("scale")[c], 1.0f);
    const float mean = one.weights.at("mean")[c];
    EXPECT_GT(std::fabs(mean), 1e-3f);
    EXPECT_NEAR(two.weights.at("mean")[c], mean, 1e-5f);
    EXPECT_NEAR(two.weights.at("variance")[c], one.weights.at("variance")[c],
                0.01f);
    // A sixteenth of the first value, which is 1.
    EXPECT_GT(two.weights.at("variance")[c], 1.0f / 16);
    EXPECT_NE(two.weights.at("variance")[c], 1.0f);
  }
}

TEST_F(TrainingTest, BatchNormalisationTrainsInEveryMode) {
  for (const auto mode :
       {ConsistencySpec::SYNC, ConsistencySpec::BOUNDED_STALENESS,
        ConsistencySpec::ASYNC}) {
    SCOPED_TRACE(ConsistencySpec::Mode_Name(mode));
    for (const char* optimizer : {"kind: ADAM", "kind: LAMB"}) {
      JobSpec spec = DigitsSpec();
      spec.mutable_consistency()->set_mode(mode);
      ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
          optimizer, spec.mutable_optimizer()));
      if (spec.optimizer().kind() == OptimizerSpec::LAMB &&
          mode != ConsistencySpec::SYNC) {
        continue;
      }
      spec.mutable_learning_rate()->set_base(0.01f);
      const auto outcome = MakeCluster(2, 2)->RunJob(spec, kNormalised);
      ASSERT_EQ(outcome.status, absl::OkStatus());
      // Evaluated by what was stored.
      EXPECT_GT(outcome.evaluations.back().accuracy(), 0.5) << "chance is 0.1";
    }
  }
}

// An evaluator plans no training batch, and has no batch statistics.
TEST_F(TrainingTest, AnEvaluatorNormalisesByWhatIsStored) {
  const auto by_chief = MakeCluster(2, 2)->RunJob(DigitsSpec(), kNormalised);
  ASSERT_EQ(by_chief.status, absl::OkStatus());
  const auto by_evaluator = TrainingCluster({.workers = 2,
                                             .ps = 2,
                                             .work_dir = dir_.File("evaluated"),
                                             .data_root = dir_.path(),
                                             .evaluator = true})
                                .RunJob(DigitsSpec(), kNormalised);
  ASSERT_EQ(by_evaluator.status, absl::OkStatus());
  ASSERT_EQ(by_evaluator.evaluations.size(), 2u);
  for (int e = 0; e < 2; ++e) {
    EXPECT_EQ(by_evaluator.evaluations[e].loss(),
              by_chief.evaluations[e].loss());
  }
}

// A lone worker's norm is that of the shards, so it must train alike.
TEST_F(TrainingTest, ClippingLeavesRunningMeansAloneInEveryMode) {
  JobSpec spec = DigitsSpec();
  spec.mutable_optimizer()->set_clip_norm(0.1f);
  const auto train = [&](ConsistencySpec::Mode mode) {
    spec.mutable_consistency()->set_mode(mode);
    const auto outcome = MakeCluster(1, 2)->RunJob(spec, kNormalised);
    EXPECT_EQ(outcome.status, absl::OkStatus());
    return outcome.weights;
  };
  EXPECT_LT(LargestDifference(train(ConsistencySpec::SYNC),
                              train(ConsistencySpec::ASYNC)),
            1e-4);
}

TEST_F(TrainingTest, OneClusterTakesOneJobAfterTheOther) {
  const auto cluster = MakeCluster(2, 2);
  const auto first = cluster->RunJob(DigitsSpec(), kModel);
  const auto second = cluster->RunJob(DigitsSpec(), kModel);
  ASSERT_EQ(first.status, absl::OkStatus());
  ASSERT_EQ(second.status, absl::OkStatus());
  EXPECT_EQ(first.weights, second.weights);
}

TEST_F(TrainingTest, MorePsThanBlocksTrain) {
  constexpr char kLogistic[] = R"(
<
  ir_version: 8,
  opset_import: ["" : 13]
>
logistic (float[N, 28, 28] image, float[784, 10] w, float[10] b)
  => (float[N, 10] logits)
{
  pixels = Flatten <axis = 1> (image)
  logits = Gemm (pixels, w, b)
})";
  const auto cluster = MakeCluster(2, 12);  // 8 blocks of w and one of b
  const auto outcome = cluster->RunJob(DigitsSpec(), kLogistic);
  ASSERT_EQ(outcome.status, absl::OkStatus());
  EXPECT_GT(outcome.evaluations.back().accuracy(), 0.3);
}

JobSpec EndlessSpec() {
  JobSpec spec = DigitsSpec();
  spec.mutable_training()->set_epochs(1'000'000);
  spec.mutable_data()->clear_test();
  spec.clear_metrics();
  return spec;
}

TEST_F(TrainingTest, APsThatGoesAwayFailsTheJobAndIsNamed) {
  const auto cluster = MakeCluster(2, 2);
  JobSpec spec = EndlessSpec();
  spec.mutable_limits()->set_step_timeout_seconds(2);
  ASSERT_EQ(cluster->Prepare(spec, kModel), absl::OkStatus());
  cluster->Run();
  ASSERT_TRUE(cluster->AwaitClock(0, 1, absl::Seconds(30)));
  cluster->KillPs(1);
  const absl::Status status = cluster->AwaitDone(absl::Seconds(30));
  EXPECT_FALSE(status.ok());
  EXPECT_FALSE(absl::IsDeadlineExceeded(status) &&
               status.message() == "the job has not ended");
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("ps:1"), HasSubstr(cluster->ps_address(1)),
                    HasSubstr("t-1"), HasSubstr("clock ")));
  EXPECT_EQ(cluster->Stop(absl::Seconds(10)), absl::OkStatus());
}

TEST_F(TrainingTest, AStopFreesEverythingAtOnceAndTheNextJobRuns) {
  const auto cluster = MakeCluster(2, 1);
  ASSERT_EQ(cluster->Prepare(EndlessSpec(), kModel), absl::OkStatus());
  cluster->Run();
  ASSERT_TRUE(cluster->AwaitClock(1, 1, absl::Seconds(30)));
  ASSERT_EQ(cluster->Stop(absl::Seconds(10)), absl::OkStatus());
  for (const DaemonMessage& message : cluster->Messages(0)) {
    if (!message.has_done()) continue;
    EXPECT_EQ(static_cast<absl::StatusCode>(message.done().code()),
              absl::StatusCode::kAborted)
        << message.done().message();
  }
  EXPECT_EQ(cluster->RunJob(DigitsSpec(), kModel).status, absl::OkStatus());
}

TEST_F(TrainingTest, AStopBeforeTheRunIsAnsweredToo) {
  const auto cluster = MakeCluster(1, 1);
  ASSERT_EQ(cluster->Prepare(EndlessSpec(), kModel), absl::OkStatus());
  EXPECT_EQ(cluster->Stop(absl::Seconds(10)), absl::OkStatus());
}

TEST_F(TrainingTest, AStopForAnUnknownJobIsAnsweredReleased) {
  const auto cluster = MakeCluster(1, 1);
  SchedulerMessage stop;
  stop.mutable_stop()->set_job_id("j-404");
  cluster->Send(0, stop);
  const auto messages = cluster->Messages(0);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0].done().job_id(), "j-404");
  EXPECT_TRUE(messages[0].done().released());
}

TEST_F(TrainingTest, ALossThatIsNotFiniteFailsTheJobWithNodeAndStep) {
  JobSpec spec = DigitsSpec();
  spec.mutable_learning_rate()->set_base(1e30f);
  const auto outcome = Train(2, 1, spec);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(outcome.status.message()),
              AllOf(HasSubstr("clock "), HasSubstr("Gemm")));
  EXPECT_THAT(outcome.artifacts, Contains(Key("logs/chief-0.log")));
}

TEST_F(TrainingTest, AJobThatFailsLeavesTheStepsThatWereRecorded) {
  JobSpec spec = DigitsSpec();
  spec.mutable_learning_rate()->set_base(1e30f);
  const auto cluster = MakeCluster(1, 1);
  ASSERT_EQ(cluster->Prepare(spec, kModel), absl::OkStatus());
  SchedulerMessage request;
  request.mutable_profile()->set_job_id("t-1");
  request.mutable_profile()->set_steps(1000);
  request.mutable_profile()->set_artifact("profiles/1-rank-0.pb");
  cluster->Send(0, request);
  cluster->Run();
  EXPECT_EQ(cluster->AwaitDone(absl::Seconds(60)).code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_EQ(cluster->Stop(absl::Seconds(30)), absl::OkStatus());
  const auto outcome = cluster->TakeOutcome();
  ASSERT_THAT(outcome.artifacts, Contains(Key("profiles/1-rank-0.pb")));
  StepProfile profile;
  ASSERT_TRUE(
      profile.ParseFromString(outcome.artifacts.at("profiles/1-rank-0.pb")));
  EXPECT_GT(profile.steps_size(), 0);
  EXPECT_LT(profile.steps_size(), 1000);
  EXPECT_EQ(profile.job_id(), "t-1");
  EXPECT_GE(profile.threads(), 1u);
}

TEST_F(TrainingTest, AllProblemsOfPreparingComeAtOnce) {
  JobSpec spec = DigitsSpec();
  spec.mutable_data()->mutable_train()->mutable_idx()->set_images("no-images");
  spec.mutable_data()->mutable_train()->mutable_idx()->set_labels("no-labels");
  spec.mutable_data()->mutable_test()->mutable_idx()->set_images("no-tests");
  spec.mutable_data()->mutable_test()->mutable_idx()->set_labels("no-answers");
  const auto cluster = MakeCluster(1, 1);
  const absl::Status status = cluster->Prepare(spec, kModel);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("data.train: "), HasSubstr("no-images"),
                    HasSubstr("data.test: "), HasSubstr("no-tests")));
  EXPECT_EQ(cluster->Stop(absl::Seconds(10)), absl::OkStatus());
  EXPECT_EQ(cluster->RunJob(DigitsSpec(), kModel).status, absl::OkStatus())
      << "the worker takes the next job";
}

TEST_F(TrainingTest, AFieldThatDoesNotFitTheGraphIsRefused) {
  JobSpec spec = DigitsSpec();
  spec.mutable_data()->mutable_feeds(0)->set_field("label");
  const auto cluster = MakeCluster(1, 1);
  const absl::Status status = cluster->Prepare(spec, kModel);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("784"));
}

}  // namespace
}  // namespace syncline
