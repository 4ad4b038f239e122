// Goal: a job without ps writes checkpoints, and one that starts from a
// checkpoint ends with the bits of a job that nothing happened to, whoever has
// written it: ps, or ranks of either strategy; and the other way round. What is
// damaged or away is refused by name; a disk that fails costs no job. Method:
// workers in this process, with two ps over real gRPC and without ps over
// InProcessPeers, real files; trained weights are compared byte for byte.

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/job/checkpoint_trouble.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/training_cluster.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr Strategy kStrategies[] = {PARAMETER_SERVER, ALL_REDUCE, SHARDED};
constexpr int64_t kClocks = 10;

constexpr char kNormalised[] = R"(
<ir_version: 8, opset_import: ["" : 15]>
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
  hidden1 = Tanh (normal1)
  flat = Flatten <axis = 1> (hidden1)
  logits = Gemm (flat, w2, b2)
})";

void Initialize(const char* pattern, float value, JobSpec* spec) {
  InitializerRule* const rule = spec->mutable_model()->add_initialize();
  rule->set_pattern(pattern);
  rule->set_scheme(InitializerRule::CONSTANT);
  rule->set_value(value);
}

struct TrainedJob {
  TrainingCluster::Outcome outcome;
  std::vector<CheckpointInfo> checkpoints;
  std::vector<std::string> troubles;
};

class PeerCheckpointTest : public ::testing::Test {
 protected:
  // Five clocks an epoch for three workers of 16 samples, two epochs.
  JobSpec Digits(absl::string_view optimizer) {
    JobSpec spec = DigitsJob();
    spec.mutable_data()->mutable_train()->mutable_digits()->set_count(197);
    spec.mutable_data()->mutable_test()->mutable_digits()->set_count(50);
    spec.mutable_data()->mutable_test()->mutable_digits()->set_seed(2);
    spec.mutable_training()->set_epochs(2);
    spec.mutable_training()->set_batch_size(16);
    spec.mutable_learning_rate()->set_base(0.01f);
    spec.mutable_learning_rate()->set_schedule(LearningRateSpec::COSINE);
    spec.mutable_limits()->set_step_timeout_seconds(20);
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        std::string(optimizer), spec.mutable_optimizer()));
    return spec;
  }

  TrainedJob Train(Strategy strategy, JobSpec spec, const std::string& model,
                   const std::optional<CheckpointInfo>& from = {},
                   uint32_t workers = 3, bool evaluator = false) {
    spec.set_strategy(strategy);
    const std::string name = absl::StrCat("c", ++clusters_);
    if (spec.has_checkpoint()) {
      folder_ = dir_.File(name + "-checkpoints");
      spec.mutable_checkpoint()->set_directory(folder_);
    }
    if (before_run_ != nullptr) before_run_();
    TrainingCluster cluster(
        {.workers = workers,
         .ps = strategy == PARAMETER_SERVER ? 2u : 0u,
         .work_dir = dir_.File(name),
         .data_root = dir_.path(),
         .evaluator = evaluator,
         .change_assignment = [&](JobAssignment* assignment) {
           if (!from.has_value()) return;
           *assignment->mutable_start_from() = *from;
           if (!spec.start().weights_only()) {
             assignment->set_start_clock(from->clock());
           }
         }});
    TrainedJob run;
    run.outcome = cluster.RunJob(spec, model);
    for (const DaemonMessage& message : cluster.Messages(0)) {
      if (message.report().has_checkpoint()) {
        run.checkpoints.push_back(message.report().checkpoint());
      }
      if (absl::StartsWith(message.report().activity(), kCheckpointTrouble)) {
        run.troubles.push_back(message.report().activity());
      }
    }
    return run;
  }

  static const std::string& Bytes(const TrainedJob& run) {
    return run.outcome.artifacts.at("trained.safetensors");
  }

  // All strategies write, and all go on with what each has written.
  void ExpectTheSame(JobSpec spec, const std::string& model,
                     absl::Span<const Strategy> strategies = kStrategies) {
    const TrainedJob reference = Train(PARAMETER_SERVER, spec, model);
    ASSERT_EQ(reference.outcome.status, absl::OkStatus());
    JobSpec saving = spec;
    saving.mutable_checkpoint()->set_every_clocks(6);
    for (const Strategy writer : strategies) {
      SCOPED_TRACE(absl::StrCat("written by ", Strategy_Name(writer)));
      const TrainedJob written = Train(writer, saving, model);
      ASSERT_EQ(written.outcome.status, absl::OkStatus());
      EXPECT_TRUE(Bytes(written) == Bytes(reference));
      ASSERT_THAT(written.checkpoints, SizeIs(1));
      EXPECT_THAT(written.troubles, SizeIs(0));
      for (const Strategy reader : strategies) {
        SCOPED_TRACE(absl::StrCat("read by ", Strategy_Name(reader)));
        const TrainedJob read =
            Train(reader, spec, model, written.checkpoints[0]);
        ASSERT_EQ(read.outcome.status, absl::OkStatus());
        EXPECT_TRUE(Bytes(read) == Bytes(reference))
            << "other bits; largest difference "
            << LargestDifference(read.outcome.weights,
                                 reference.outcome.weights);
        ASSERT_FALSE(read.outcome.evaluations.empty());
        EXPECT_EQ(read.outcome.evaluations.back().loss(),
                  reference.outcome.evaluations.back().loss());
      }
    }
  }

  TempDir dir_;
  std::string folder_;  // of the last job's checkpoints
  std::function<void()> before_run_;
  int clusters_ = 0;
};

TEST_F(PeerCheckpointTest, AnMlpGoesOnWithoutATrace) {
  ExpectTheSame(Digits("kind: ADAM"), MlpModel(784, 32, 10));
}

// By each strategy from what stage 3 has written, and the other way round.
class GatheredCheckpointTest : public PeerCheckpointTest {
 protected:
  void ExpectNoTrace(WireType wire_type);
};

void GatheredCheckpointTest::ExpectNoTrace(WireType wire_type) {
  JobSpec spec = Digits("kind: ADAM");
  spec.set_wire_type(wire_type);
  Initialize("mean*", 0, &spec);
  Initialize("variance*", 1, &spec);
  Initialize("scale*", 1, &spec);
  const TrainedJob reference = Train(SHARDED, spec, kNormalised);
  ASSERT_EQ(reference.outcome.status, absl::OkStatus());
  JobSpec gathering = spec;
  gathering.mutable_sharding()->set_stage(3);
  for (const bool writes : {false, true}) {
    SCOPED_TRACE(writes);
    JobSpec writer = writes ? gathering : spec;
    writer.mutable_checkpoint()->set_every_clocks(6);
    const TrainedJob written = Train(SHARDED, writer, kNormalised);
    ASSERT_EQ(written.outcome.status, absl::OkStatus());
    EXPECT_TRUE(Bytes(written) == Bytes(reference));
    ASSERT_THAT(written.checkpoints, SizeIs(1));
    for (const JobSpec& reader : {spec, gathering}) {
      const TrainedJob read =
          Train(SHARDED, reader, kNormalised, written.checkpoints[0]);
      ASSERT_EQ(read.outcome.status, absl::OkStatus());
      EXPECT_TRUE(Bytes(read) == Bytes(reference));
    }
    if (!writes) continue;
    const TrainedJob by_ps =
        Train(PARAMETER_SERVER, spec, kNormalised, written.checkpoints[0]);
    ASSERT_EQ(by_ps.outcome.status, absl::OkStatus());
    EXPECT_TRUE(Bytes(by_ps) == Bytes(reference));
  }
  // Behind the last clock there is no step: what was read is exported.
  gathering.mutable_checkpoint()->set_every_clocks(kClocks);
  const TrainedJob written = Train(SHARDED, gathering, kNormalised);
  ASSERT_EQ(written.outcome.status, absl::OkStatus());
  ASSERT_THAT(written.checkpoints, SizeIs(1));
  const TrainedJob read =
      Train(SHARDED, gathering, kNormalised, written.checkpoints[0]);
  ASSERT_EQ(read.outcome.status, absl::OkStatus());
  EXPECT_TRUE(Bytes(read) == Bytes(reference));
}

TEST_F(GatheredCheckpointTest, GatheredValuesGoOnWithoutATrace) {
  ExpectNoTrace(WIRE_FLOAT32);
}

TEST_F(GatheredCheckpointTest, GatheredValuesOf16BitsGoOnToo) {
  ExpectNoTrace(WIRE_BFLOAT16);
}

TEST_F(PeerCheckpointTest, LambWithClippingGoesOnWithoutATrace) {
  ExpectTheSame(Digits("kind: LAMB clip_norm: 0.5"), MlpModel(784, 32, 10));
}

TEST_F(PeerCheckpointTest, AConvolutionalNetWithBatchStatisticsGoesOnToo) {
  JobSpec spec = Digits("kind: MOMENTUM");
  Initialize("mean*", 0, &spec);
  Initialize("variance*", 1, &spec);
  Initialize("scale*", 1, &spec);
  spec.mutable_training()->set_sync_batch_statistics(true);
  ExpectTheSame(spec, kNormalised);
}

// Checkpoints have whole values; ranks that have read one train on rounded
// ones.
TEST_F(PeerCheckpointTest, SixteenBitsOnTheWireGoOnToo) {
  JobSpec spec = Digits("kind: ADAM");
  spec.set_wire_type(WIRE_BFLOAT16);
  ExpectTheSame(spec, MlpModel(784, 32, 10));
}

// The scale of the loss, and which steps were skipped for it.
TEST_F(PeerCheckpointTest, AScaledLossGoesOnToo) {
  JobSpec spec = Digits("kind: ADAM");
  spec.set_precision(FLOAT16);
  spec.mutable_loss_scale()->set_initial(16777216);
  ExpectTheSame(spec, MlpModel(784, 32, 10));
}

// A chief that is as far ahead as it may be has its next values before it
// awaits the cut that holds the others.
TEST_F(PeerCheckpointTest, WorkersOfABoundAreCutWhereTheyAre) {
  for (const uint32_t bound : {1u, 2u}) {
    SCOPED_TRACE(bound);
    JobSpec spec = Digits("kind: ADAM");
    spec.mutable_data()->mutable_train()->mutable_digits()->set_count(3200);
    spec.mutable_training()->set_batch_size(8);
    spec.mutable_limits()->set_step_timeout_seconds(5);
    spec.mutable_consistency()->set_mode(ConsistencySpec::BOUNDED_STALENESS);
    spec.mutable_consistency()->set_staleness_bound(bound);
    spec.mutable_checkpoint()->set_every_clocks(3);
    const TrainedJob run =
        Train(PARAMETER_SERVER, spec, MlpModel(784, 32, 10), {}, 2);
    EXPECT_EQ(run.outcome.status, absl::OkStatus());
    EXPECT_GT(run.checkpoints.size(), 10u);
  }
}

TEST_F(PeerCheckpointTest, ValuesAloneBeginAJob) {
  JobSpec spec = Digits("kind: ADAM");
  spec.mutable_checkpoint()->set_every_clocks(5);
  const TrainedJob written = Train(SHARDED, spec, MlpModel(784, 32, 10));
  ASSERT_EQ(written.outcome.status, absl::OkStatus());
  ASSERT_FALSE(written.checkpoints.empty());
  const CheckpointInfo& from = written.checkpoints[0];
  JobSpec later = Digits("kind: ADAGRAD");
  later.mutable_start()->set_checkpoint(from.path());
  later.mutable_start()->set_manifest_crc32c(from.manifest_crc32c());
  later.mutable_start()->set_weights_only(true);
  std::string reference;
  for (const Strategy strategy : kStrategies) {
    SCOPED_TRACE(Strategy_Name(strategy));
    const TrainedJob run = Train(strategy, later, MlpModel(784, 32, 10), from,
                                 /*workers=*/2);
    ASSERT_EQ(run.outcome.status, absl::OkStatus());
    if (reference.empty()) reference = Bytes(run);
    EXPECT_TRUE(Bytes(run) == reference);
  }
}

TEST_F(PeerCheckpointTest, TheStateAfterTheLastClockIsReadAndExported) {
  JobSpec spec = Digits("kind: ADAM");
  spec.mutable_checkpoint()->set_every_clocks(kClocks);
  for (const Strategy strategy : {ALL_REDUCE, SHARDED}) {
    SCOPED_TRACE(Strategy_Name(strategy));
    const TrainedJob written = Train(strategy, spec, MlpModel(784, 32, 10));
    ASSERT_EQ(written.outcome.status, absl::OkStatus());
    ASSERT_THAT(written.checkpoints, SizeIs(1));
    EXPECT_EQ(written.checkpoints[0].clock(), kClocks);
    const TrainedJob read =
        Train(strategy, spec, MlpModel(784, 32, 10), written.checkpoints[0]);
    ASSERT_EQ(read.outcome.status, absl::OkStatus());
    EXPECT_TRUE(Bytes(read) == Bytes(written));
    ASSERT_THAT(read.outcome.evaluations, SizeIs(1));
    EXPECT_TRUE(read.outcome.evaluations[0].final());
    const TrainedJob evaluated =
        Train(strategy, spec, MlpModel(784, 32, 10), written.checkpoints[0],
              /*workers=*/3, /*evaluator=*/true);
    ASSERT_EQ(evaluated.outcome.status, absl::OkStatus());
    ASSERT_THAT(evaluated.outcome.evaluations, SizeIs(1));
    EXPECT_EQ(evaluated.outcome.evaluations[0].loss(),
              read.outcome.evaluations[0].loss());
  }
}

TEST_F(PeerCheckpointTest, WithLittleRoomForCopiesRanksWaitAndNothingElse) {
  JobSpec spec = Digits("kind: ADAM");
  const TrainedJob reference =
      Train(PARAMETER_SERVER, spec, MlpModel(784, 32, 10));
  spec.mutable_checkpoint()->set_every_clocks(1);
  spec.mutable_checkpoint()->set_copy_bytes(0);
  const TrainedJob written = Train(ALL_REDUCE, spec, MlpModel(784, 32, 10));
  ASSERT_EQ(written.outcome.status, absl::OkStatus());
  EXPECT_TRUE(Bytes(written) == Bytes(reference));
  EXPECT_FALSE(written.checkpoints.empty());
  // Older ones have gone.
  const auto left = ListCheckpoints(absl::StrCat(folder_, "/t-1"));
  ASSERT_OK(left);
  EXPECT_LE(left->size(), 3u);
}

TEST_F(PeerCheckpointTest, AFolderThatCannotBeMadeCostsNoJob) {
  JobSpec spec = Digits("kind: ADAM");
  spec.mutable_checkpoint()->set_every_clocks(6);
  // The job's own folder.
  before_run_ = [&] {
    std::filesystem::create_directories(folder_);
    std::ofstream(absl::StrCat(folder_, "/t-1")) << "in the way";
  };
  const TrainedJob run = Train(SHARDED, spec, MlpModel(784, 32, 10));
  ASSERT_EQ(run.outcome.status, absl::OkStatus());
  EXPECT_THAT(run.checkpoints, SizeIs(0));
  ASSERT_FALSE(run.troubles.empty());
  EXPECT_THAT(run.troubles[0], HasSubstr("t-1"));
}

TEST_F(PeerCheckpointTest, WhatIsDamagedOrAwayIsRefusedByName) {
  JobSpec spec = Digits("kind: ADAM");
  spec.mutable_checkpoint()->set_every_clocks(5);
  const TrainedJob written = Train(SHARDED, spec, MlpModel(784, 32, 10));
  ASSERT_FALSE(written.checkpoints.empty());
  const CheckpointInfo from = written.checkpoints[0];
  const auto problem = [&](Strategy strategy, const JobSpec& job) {
    return std::string(Train(strategy, job, MlpModel(784, 32, 10), from)
                           .outcome.status.message());
  };
  EXPECT_THAT(problem(SHARDED, Digits("kind: LAMB")),
              AllOf(HasSubstr(from.path()),
                    HasSubstr("its optimizer is 'adam' with 2 slots")));
  JobSpec plain = Digits("kind: ADAM");
  const std::string file =
      absl::StrCat(from.path(), "/shard-00001-of-00003.state");
  {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(
        static_cast<std::streamoff>(std::filesystem::file_size(file) / 2));
    bytes.put('!');
  }
  EXPECT_THAT(problem(ALL_REDUCE, plain),
              AllOf(HasSubstr(from.path()), HasSubstr(kDamagedCheckpoint)));
  std::filesystem::remove(file);
  EXPECT_THAT(problem(SHARDED, plain),
              AllOf(HasSubstr(file), HasSubstr(kUnseenCheckpoint)));
}

// Of an asynchronous job, whose workers were cut where they were.
TEST_F(PeerCheckpointTest, WorkersAtDifferentClocksAreRefusedByName) {
  JobSpec spec = Digits("kind: ADAM");
  spec.mutable_checkpoint()->set_every_clocks(5);
  const TrainedJob written = Train(ALL_REDUCE, spec, MlpModel(784, 32, 10));
  ASSERT_FALSE(written.checkpoints.empty());
  CheckpointInfo from = written.checkpoints[0];
  auto manifest = ReadManifest(from.path());
  ASSERT_OK(manifest);
  manifest->mutable_workers(1)->set_clock(7);
  const auto encoded = EncodeManifest(*manifest);
  ASSERT_OK(encoded);
  std::filesystem::remove(absl::StrCat(from.path(), "/", kManifestFile));
  ASSERT_OK(WriteManifest(from.path(), *encoded));
  from = CheckpointInfoOf(*manifest, from.path(), *encoded);
  const TrainedJob read =
      Train(ALL_REDUCE, Digits("kind: ADAM"), MlpModel(784, 32, 10), from);
  EXPECT_THAT(std::string(read.outcome.status.message()),
              AllOf(HasSubstr("at different clocks, 5 and 7"),
                    HasSubstr("start.weights_only")));
}

}  // namespace
}  // namespace syncline
