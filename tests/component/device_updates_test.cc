// Goal: ranks that reduce among themselves and have GPUs make their updates
// there, and end with the bits of a ps, which updates on its processors: with
// every optimizer that a GPU has, clipped, with running means and skipped
// steps; what the host reads of them, at evaluations, in checkpoints and where
// the strategy changes, is the same, too. What a GPU does not update is said.
// Method: workers in this process with emulated GPUs, jobs with ps against jobs
// without.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/cuda_emulator/emulated_device.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/training_cluster.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using testing::EmulatedDevice;
using ::testing::HasSubstr;

constexpr char kOnProcessors[] = "updates are made on the processors";

// With running statistics.
constexpr char kWithMeans[] = R"(
<ir_version: 8, opset_import: ["" : 15]>
means (
  float[N, 784] x, float[784, 12] w1, float[12] scale, float[12] b1,
  float[12] mean, float[12] variance, float[12, 10] w2, float[10] b2
) => (float[N, 10] logits)
{
  sum = MatMul (x, w1)
  normal = BatchNormalization (sum, scale, b1, mean, variance)
  hidden = Tanh (normal)
  logits = Gemm (hidden, w2, b2)
})";

// Two epochs of three steps of two workers; the last one of each has a rank
// without samples.
JobSpec DigitsOnGpus(absl::string_view optimizer) {
  JobSpec spec = DigitsJob();
  spec.mutable_data()->mutable_train()->mutable_digits()->set_count(40);
  spec.mutable_data()->mutable_test()->mutable_digits()->set_count(16);
  spec.mutable_training()->set_batch_size(8);
  spec.mutable_training()->set_eval_batch_size(16);
  spec.mutable_training()->set_epochs(2);
  spec.mutable_learning_rate()->set_base(0.01);
  spec.mutable_learning_rate()->set_schedule(LearningRateSpec::COSINE);
  spec.mutable_limits()->set_step_timeout_seconds(60);
  spec.mutable_resources()->set_device(ResourcesSpec::CUDA);
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      std::string(optimizer), spec.mutable_optimizer()));
  return spec;
}

class DeviceUpdatesTest : public ::testing::Test {
 protected:
  struct Run {
    TrainingCluster::Outcome outcome;
    std::vector<CheckpointInfo> checkpoints;
    std::string log;
    int64_t launches = 0;
  };
  // Two workers, each with a GPU.
  Run Train(Strategy strategy, JobSpec spec, const std::string& model,
            TrainingCluster::Options options = {},
            uint64_t memory_bytes = uint64_t{1} << 40) {
    spec.set_strategy(strategy);
    std::vector<std::unique_ptr<EmulatedDevice>> gpus;
    for (int rank = 0; rank < 2; ++rank) {
      gpus.push_back(std::make_unique<EmulatedDevice>(rank + 1, memory_bytes));
      options.gpus.push_back(gpus.back().get());
    }
    if (prepare_gpu_ != nullptr) prepare_gpu_(gpus[0].get());
    options.workers = 2;
    if (strategy == PARAMETER_SERVER) options.ps = 1;
    options.work_dir = dir_.File(absl::StrCat("c", ++clusters_));
    options.data_root = dir_.path();
    Run run;
    ::testing::internal::CaptureStderr();
    {
      TrainingCluster cluster(options);
      cluster_ = &cluster;
      run.outcome = cluster.RunJob(spec, model);
      for (const DaemonMessage& message : cluster.Messages(0)) {
        if (message.report().has_checkpoint()) {
          run.checkpoints.push_back(message.report().checkpoint());
        }
      }
    }
    run.log = ::testing::internal::GetCapturedStderr();
    for (const auto& gpu : gpus) run.launches += gpu->launches();
    return run;
  }
  static TrainingCluster::Options WithoutPs() {
    TrainingCluster::Options options;
    options.ps = 0;
    return options;
  }
  static void ExpectTheSame(const Run& run, const Run& want) {
    ASSERT_EQ(want.outcome.status, absl::OkStatus());
    ASSERT_EQ(run.outcome.status, absl::OkStatus());
    EXPECT_TRUE(run.outcome.artifacts.at("trained.safetensors") ==
                want.outcome.artifacts.at("trained.safetensors"))
        << "other bits; largest difference "
        << LargestDifference(run.outcome.weights, want.outcome.weights);
    ASSERT_EQ(run.outcome.evaluations.size(), want.outcome.evaluations.size());
    for (size_t e = 0; e < want.outcome.evaluations.size(); ++e) {
      EXPECT_EQ(run.outcome.evaluations[e].loss(),
                want.outcome.evaluations[e].loss())
          << e;
    }
  }

  TempDir dir_;
  int clusters_ = 0;
  TrainingCluster* cluster_ = nullptr;
  std::function<void(EmulatedDevice* gpu)> prepare_gpu_;
};

TEST_F(DeviceUpdatesTest, EndWithTheBitsOfAPs) {
  const std::string model = MlpModel(784, 12, 10);
  for (const char* const optimizer :
       {"kind: SGD", "kind: MOMENTUM clip_norm: 0.5 weight_decay: 0.01",
        "kind: ADAM clip_norm: 0.5", "kind: ADAMW weight_decay: 0.01"}) {
    SCOPED_TRACE(optimizer);
    const JobSpec spec = DigitsOnGpus(optimizer);
    const Run with_ps = Train(PARAMETER_SERVER, spec, model);
    for (const Strategy strategy : {ALL_REDUCE, SHARDED}) {
      SCOPED_TRACE(Strategy_Name(strategy));
      const Run without = Train(strategy, spec, model, WithoutPs());
      ExpectTheSame(without, with_ps);
      EXPECT_FALSE(absl::StrContains(without.log, kOnProcessors))
          << without.log;
      EXPECT_GT(without.launches, with_ps.launches);
    }
  }
}

TEST_F(DeviceUpdatesTest, OwnersUpdateWhateverIsOnTheWire) {
  const std::string model = MlpModel(784, 12, 10);
  for (const bool compresses : {false, true}) {
    SCOPED_TRACE(compresses);
    JobSpec spec = DigitsOnGpus("kind: ADAM");
    if (compresses) {
      spec.mutable_compression()->set_kind(CompressionSpec::INT8);
    } else {
      spec.set_wire_type(WIRE_BFLOAT16);
    }
    const Run with_ps = Train(PARAMETER_SERVER, spec, model);
    const Run without = Train(SHARDED, spec, model, WithoutPs());
    ExpectTheSame(without, with_ps);
    EXPECT_FALSE(absl::StrContains(without.log, kOnProcessors)) << without.log;
  }
}

TEST_F(DeviceUpdatesTest, RunningMeansAreTheDevicesToo) {
  JobSpec spec = DigitsOnGpus("kind: ADAM");
  spec.set_non_finite(SKIP_STEP);
  for (const auto& [pattern, value] :
       {std::pair<const char*, float>{"mean*", 0.0f},
        {"variance*", 1.0f},
        {"scale*", 1.0f}}) {
    InitializerRule* const rule = spec.mutable_model()->add_initialize();
    rule->set_pattern(pattern);
    rule->set_scheme(InitializerRule::CONSTANT);
    rule->set_value(value);
  }
  const Run with_ps = Train(PARAMETER_SERVER, spec, kWithMeans);
  const Run without = Train(ALL_REDUCE, spec, kWithMeans, WithoutPs());
  ExpectTheSame(without, with_ps);
  EXPECT_FALSE(absl::StrContains(without.log, kOnProcessors)) << without.log;
}

// Masters are float32, of batches in parts too; a loss scale that is too large
// skips steps.
TEST_F(DeviceUpdatesTest, InSixteenBitsAndInParts) {
  const std::string model = MlpModel(784, 12, 10);
  for (const Precision precision : {BFLOAT16, FLOAT16}) {
    SCOPED_TRACE(Precision_Name(precision));
    JobSpec spec = DigitsOnGpus("kind: ADAM");
    spec.set_precision(precision);
    spec.mutable_training()->set_micro_batches(2);
    if (precision == FLOAT16) {
      spec.set_non_finite(SKIP_STEP);
      spec.mutable_loss_scale()->set_initial(1 << 24);
    }
    const Run with_ps = Train(PARAMETER_SERVER, spec, model);
    ExpectTheSame(Train(ALL_REDUCE, spec, model, WithoutPs()), with_ps);
    ExpectTheSame(Train(SHARDED, spec, model, WithoutPs()), with_ps);
  }
}

TEST_F(DeviceUpdatesTest, AnEvaluatorReadsTheDevicesValues) {
  const std::string model = MlpModel(784, 12, 10);
  const JobSpec spec = DigitsOnGpus("kind: ADAM");
  TrainingCluster::Options options = WithoutPs();
  options.evaluator = true;
  // It computes on its processors.
  JobSpec for_all = spec;
  for_all.mutable_resources()->set_device(ResourcesSpec::AUTO);
  const Run with_ps = Train(PARAMETER_SERVER, spec, model);
  const Run run = Train(ALL_REDUCE, for_all, model, options);
  ASSERT_EQ(run.outcome.status, absl::OkStatus());
  EXPECT_TRUE(run.outcome.artifacts.at("trained.safetensors") ==
              with_ps.outcome.artifacts.at("trained.safetensors"));
  ASSERT_EQ(run.outcome.evaluations.size(), 2u);
  for (size_t e = 0; e < 2; ++e) {
    EXPECT_NEAR(run.outcome.evaluations[e].loss(),
                with_ps.outcome.evaluations[e].loss(), 1e-4);
  }
}

TEST_F(DeviceUpdatesTest, ACheckpointHasTheDevicesState) {
  const std::string model = MlpModel(784, 12, 10);
  JobSpec spec = DigitsOnGpus("kind: ADAM");
  spec.mutable_training()->set_epochs(3);
  const Run want = Train(ALL_REDUCE, spec, model, WithoutPs());
  spec.mutable_checkpoint()->set_directory(dir_.File("checkpoints"));
  spec.mutable_checkpoint()->set_every_clocks(4);
  spec.mutable_checkpoint()->set_keep_last(8);
  const Run sharded = Train(SHARDED, spec, model, WithoutPs());
  ExpectTheSame(sharded, want);
  ASSERT_FALSE(sharded.checkpoints.empty());
  spec.mutable_checkpoint()->set_directory(dir_.File("checkpoints-2"));
  const Run saving = Train(ALL_REDUCE, spec, model, WithoutPs());
  ExpectTheSame(saving, want);
  ASSERT_FALSE(saving.checkpoints.empty());
  for (const auto& [strategy, from] :
       std::vector<std::pair<Strategy, CheckpointInfo>>{
           {ALL_REDUCE, saving.checkpoints[0]},
           {PARAMETER_SERVER, saving.checkpoints[0]},
           {PARAMETER_SERVER, sharded.checkpoints[0]},
           {SHARDED, sharded.checkpoints[0]}}) {
    SCOPED_TRACE(Strategy_Name(strategy));
    EXPECT_EQ(from.clock(), 4);
    TrainingCluster::Options options = WithoutPs();
    options.change_assignment = [&, start = from](JobAssignment* assignment) {
      *assignment->mutable_start_from() = start;
      assignment->set_start_clock(start.clock());
    };
    JobSpec going_on = spec;
    going_on.mutable_checkpoint()->set_directory(
        dir_.File(absl::StrCat("checkpoints", clusters_)));
    const Run run = Train(strategy, going_on, model, options);
    ASSERT_EQ(run.outcome.status, absl::OkStatus());
    EXPECT_TRUE(run.outcome.artifacts.at("trained.safetensors") ==
                want.outcome.artifacts.at("trained.safetensors"));
  }
}

// The state goes to ps, to owners and back, and the device's is that of the
// last exchange.
TEST_F(DeviceUpdatesTest, TheStateMovesWhereTheStrategyChanges) {
  const std::string model = MlpModel(784, 12, 10);
  JobSpec spec = DigitsOnGpus("kind: ADAM");
  spec.mutable_training()->set_epochs(6);
  spec.mutable_resources()->set_ps(1);
  const Run want = Train(PARAMETER_SERVER, spec, model);
  const std::vector<Strategy> changes = {PARAMETER_SERVER, ALL_REDUCE, SHARDED,
                                         ALL_REDUCE};
  size_t next = 0;
  TrainingCluster::Options options;
  options.ps = 1;
  options.on_evaluation = [&](const Evaluation&) {
    if (next == changes.size()) return;
    SchedulerMessage command;
    ChangeRegime* const change = command.mutable_change_regime();
    change->set_job_id("t-1");
    change->set_attempt(kTestPass.attempt);
    change->mutable_change()->set_strategy(changes[next]);
    change->set_reason(absl::StrCat("change ", ++next));
    cluster_->Send(0, command);
  };
  const Run run = Train(ALL_REDUCE, spec, model, options);
  EXPECT_EQ(next, changes.size());
  ExpectTheSame(run, want);
}

TEST_F(DeviceUpdatesTest, WhatAGpuDoesNotUpdateIsSaid) {
  const std::string model = MlpModel(784, 12, 10);
  struct Case {
    Strategy strategy;
    const char* optimizer;
    const char* why;
  };
  for (const Case& c :
       {Case{ALL_REDUCE, "kind: NESTEROV",
             "optimizer.kind: NESTEROV has no kernel there"},
        Case{SHARDED, "kind: LAMB", "optimizer.kind: LAMB has no kernel there"},
        Case{ALL_REDUCE, "kind: ADAM", "wire_type: values are rounded"}}) {
    SCOPED_TRACE(c.why);
    JobSpec spec = DigitsOnGpus(c.optimizer);
    if (absl::StartsWith(c.why, "wire")) spec.set_wire_type(WIRE_BFLOAT16);
    const Run run = Train(c.strategy, spec, model, WithoutPs());
    EXPECT_THAT(run.log, AllOf(HasSubstr(kOnProcessors), HasSubstr(c.why)));
    ExpectTheSame(run, Train(PARAMETER_SERVER, spec, model));
  }
}

TEST_F(DeviceUpdatesTest, StateThatDoesNotFitIsRefusedWithABatchThatWould) {
  // 1.2 M parameters: 9.6 MB for the executor, as many for Adam's state and
  // half of that for values.
  const std::string model = MlpModel(784, 1500, 10);
  JobSpec spec = DigitsOnGpus("kind: ADAM");
  spec.mutable_training()->set_batch_size(512);
  spec.mutable_training()->set_eval_batch_size(16);
  spec.mutable_data()->mutable_train()->mutable_digits()->set_count(1024);
  const Run run = Train(ALL_REDUCE, spec, model, WithoutPs(),
                        (uint64_t{64} << 20) + 25'500'000);
  EXPECT_THAT(
      std::string(run.outcome.status.message()),
      AllOf(HasSubstr("values and the optimizer's state on emulated need"),
            HasSubstr("training.batch_size: "), HasSubstr(" would fit")));
}

TEST_F(DeviceUpdatesTest, AGpuThatFailsInAnUpdateSaysSo) {
  const std::string model = MlpModel(784, 12, 10);
  const JobSpec spec = DigitsOnGpus("kind: ADAM");
  // A step has some dozens of launches, with their marks.
  bool found = false;
  for (int64_t launch = 10; launch < 60 && !found; ++launch) {
    prepare_gpu_ = [launch](EmulatedDevice* gpu) { gpu->FailAt(launch); };
    std::string lost;
    TrainingCluster::Options options = WithoutPs();
    options.on_gpu_lost = [&](const absl::Status& why, bool) {
      lost = std::string(why.message());
    };
    const Run run = Train(ALL_REDUCE, spec, model, options);
    EXPECT_FALSE(run.outcome.status.ok());
    ASSERT_THAT(lost, HasSubstr("the device was lost"));
    found = absl::StrContains(lost, "running: the update");
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace syncline
