// Goal: the client moves every gradient to the shard that owns it and every
// value back, once and in order, within its windows. Method: shards on the fake
// ps that apply "value -= gradient". The part beside: ps_client_failure_test.cc
// (calls that fail, and waits that end).

#include "worker/client/ps_client.h"

#include <limits>
#include <memory>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "tests/component/ps_client_fixture.h"
#include "tests/testing/eventually.h"

namespace syncline {
namespace {

const RegimeSchedule kAsync(TrainingRegime{.mode = ConsistencyMode::kAsync});

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

TEST_F(PsClientTest, MovesGradientsOutAndValuesBack) {
  SetUpCluster({100'000, 10, 5000, 1}, 2);
  ExpectStepMovesEverything();
  for (const auto& shard : shards_) {
    for (const PushHeader& push : shard->pushes()) {
      EXPECT_EQ(push.caller().job_id(), "j-7");
      EXPECT_EQ(push.caller().rank(), 2u);
      EXPECT_EQ(push.caller().incarnation(), 42u);
      EXPECT_EQ(push.caller().routing_version(), 1u);
      EXPECT_EQ(push.sample_count(), 3u);
    }
  }
  for (uint32_t s = 0; s < 2; ++s) {
    size_t blocks = 0;
    for (const PushHeader& push : shards_[s]->pushes()) {
      EXPECT_EQ(push.blocks_in_clock(), map_->shard_blocks(s).size());
      blocks += static_cast<size_t>(push.blocks_size());
    }
    EXPECT_EQ(blocks, map_->shard_blocks(s).size());
  }
}

TEST_F(PsClientTest, AShardLargerThanTheWindowDoesNotWaitForItself) {
  worker::PsClient::Options options;
  options.chunk_bytes = 16 << 10;
  options.push_window_bytes = 32 << 10;  // of 400 kB
  options.pull_window_bytes = 32 << 10;
  SetUpCluster({100'000}, 1, options);
  shards_[0]->HoldPullsUntilClosed();
  ExpectStepMovesEverything();
}

// So a ps that is slower than the network holds a window of each worker, not a
// gradient.
TEST_F(PsClientTest, NoMoreThanTheWindowIsOnItsWayUntilTheShardTakesIt) {
  worker::PsClient::Options options;
  options.chunk_bytes = 16 << 10;
  options.push_window_bytes = 64 << 10;  // of 400 kB
  SetUpCluster({100'000}, 1, options);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  const size_t before = shards_[0]->seen().size();
  shards_[0]->TakeNothing();
  client_->BeginStep({.clock = 0, .sample_count = 3});
  client_->OnGradientReady(0);
  client_->EndBackward({});
  EXPECT_TRUE(Eventually(absl::Seconds(30), [&] {
    return shards_[0]->seen().size() == before + 4;
  }));
  // A fifth would have left by now.
  EXPECT_FALSE(Eventually(absl::Milliseconds(200), [&] {
    return shards_[0]->seen().size() > before + 4;
  }));
  shards_[0]->Take();
  ASSERT_EQ(client_->Wait(), absl::OkStatus());
}

// The shard has not taken what it refused, so the repeat is counted again.
TEST_F(PsClientTest, WhatIsSentAgainTakesPartInTheWindowAgain) {
  worker::PsClient::Options options;
  options.chunk_bytes = 16 << 10;
  options.push_window_bytes = 64 << 10;  // of 400 kB
  SetUpCluster({100'000}, 1, options);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  const size_t before = shards_[0]->seen().size();
  shards_[0]->FailNext(std::vector<grpc::Status>(
      4, {grpc::StatusCode::UNAVAILABLE, "no room yet"}));
  shards_[0]->TakeNothing();
  client_->BeginStep({.clock = 0, .sample_count = 3});
  client_->OnGradientReady(0);
  client_->EndBackward({});
  // Four that failed, and four that wait.
  EXPECT_TRUE(Eventually(absl::Seconds(30), [&] {
    return shards_[0]->seen().size() == before + 8;
  }));
  // A ninth would have left by now.
  EXPECT_FALSE(Eventually(absl::Milliseconds(300), [&] {
    return shards_[0]->seen().size() > before + 8;
  }));
  shards_[0]->Take();
  ASSERT_EQ(client_->Wait(), absl::OkStatus());
}

// A perceptron 784-256-256-10: less than 1.1 MB in all.
TEST_F(PsClientTest, TheLastLayersLeaveWhileTheFirstIsComputed) {
  SetUpCluster({784 * 256, 256, 256 * 256, 256, 2560, 10}, 1);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  client_->BeginStep({.clock = 0, .sample_count = 3});
  for (uint32_t tensor = 5; tensor >= 2; --tensor) {
    client_->OnGradientReady(tensor);
  }
  // Backward is still busy with the first layer.
  EXPECT_TRUE(Eventually(absl::Seconds(30),
                         [&] { return !shards_[0]->pushes().empty(); }));
  for (const PushHeader& push : shards_[0]->pushes()) {
    for (const uint32_t block : push.blocks()) {
      EXPECT_GE(map_->blocks()[block].tensor, 2u);
    }
  }
  client_->OnGradientReady(1);
  client_->OnGradientReady(0);
  client_->EndBackward({});
  ASSERT_EQ(client_->Wait(), absl::OkStatus());
}

TEST_F(PsClientTest, WhatTheServersWaitedForIsNotThePull) {
  SetUpCluster({100'000}, 1);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  ASSERT_EQ(RunStep(0), absl::OkStatus());
  EXPECT_EQ(client_->wait_times().wait, absl::ZeroDuration());
  EXPECT_GT(client_->wait_times().pull, absl::ZeroDuration());
  // More than the step took: no time is counted twice.
  shards_[0]->ClaimToHaveWaited(1000);
  ASSERT_EQ(RunStep(1), absl::OkStatus());
  EXPECT_GT(client_->wait_times().wait, absl::ZeroDuration());
  EXPECT_EQ(client_->wait_times().pull, absl::ZeroDuration());
}

TEST_F(PsClientTest, PullReadsAllValues) {
  SetUpCluster({3000, 70}, 2);
  const auto initial = memory_->values;
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  for (auto& values : memory_->values)
    std::fill(values.begin(), values.end(), 0);
  ASSERT_EQ(client_->Pull(0), absl::OkStatus());
  EXPECT_EQ(memory_->values, initial);
}

TEST_F(PsClientTest, WhatIsNeededFirstIsPulledFirst) {
  first_use_ = {2, 0, 3, 1};
  worker::PsClient::Options options;
  options.chunk_bytes = 4096;
  options.pull_window_bytes = 4096;  // one after the other
  SetUpCluster({1024, 1024, 1024, 1024}, 1, options);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  const size_t before = shards_[0]->seen().size();
  ASSERT_EQ(client_->Pull(0), absl::OkStatus());
  const std::vector<std::string> seen = shards_[0]->seen();
  std::vector<uint32_t> tensors;
  for (size_t i = before; i < seen.size(); ++i) {
    PullRequest request;
    ASSERT_TRUE(request.ParseFromString(seen[i]));
    ASSERT_EQ(request.header().blocks_size(), 1);
    tensors.push_back(map_->blocks()[request.header().blocks(0)].tensor);
  }
  EXPECT_THAT(tensors, ElementsAre(1, 3, 0, 2));
}

TEST_F(PsClientTest, WithoutSamplesEveryShardGetsAnEmptyCloseAndIsRead) {
  SetUpCluster({3000, 70}, 2);
  const auto initial = memory_->values;
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  for (auto& values : memory_->values)
    std::fill(values.begin(), values.end(), 0);
  client_->BeginStep({.clock = 0, .sample_count = 0, .finished = true});
  client_->EndBackward({});
  ASSERT_EQ(client_->Wait(), absl::OkStatus());
  EXPECT_EQ(memory_->values, initial);
  for (const auto& shard : shards_) {
    const std::vector<PushHeader> pushes = shard->pushes();
    ASSERT_THAT(pushes, SizeIs(1));
    EXPECT_THAT(pushes[0].blocks(), IsEmpty());
    EXPECT_EQ(pushes[0].sample_count(), 0u);
    EXPECT_EQ(pushes[0].blocks_in_clock(), 0u);
    EXPECT_TRUE(pushes[0].finished());
  }
}

TEST_F(PsClientTest, AShardWithoutBlocksIsLeftAlone) {
  SetUpCluster({5}, 3);
  ExpectStepMovesEverything();
  ASSERT_EQ(client_->BeginCut({.id = 1, .clocks = {4, 4}}).status(),
            absl::OkStatus());
  int contacted = 0;
  for (const auto& shard : shards_) contacted += shard->calls() > 0 ? 1 : 0;
  EXPECT_EQ(contacted, 1);
}

TEST_F(PsClientTest, ACutNamesAClockForEveryWorker) {
  worker::PsClient::Options options;
  options.regimes = kAsync;
  SetUpCluster({3000}, 1, options);
  ASSERT_EQ(client_->BeginCut({.id = 9, .clocks = {40, 41, 40}}).status(),
            absl::OkStatus());
  EXPECT_EQ(shards_[0]->cut().cut_id(), 9u);
  EXPECT_THAT(shards_[0]->cut().clocks(), ElementsAre(40, 41, 40));
  EXPECT_GT(shards_[0]->cut().hold_seconds(), 0);
}

TEST_F(PsClientTest, TheNormIsOfTheWholeGradientSoNothingLeavesEarly) {
  worker::PsClient::Options options;
  options.clip_norm = true;
  options.regimes = kAsync;
  options.chunk_bytes = 4096;
  SetUpCluster({3000, 70}, 1, options);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  client_->BeginStep({.clock = 0, .sample_count = 3});
  client_->OnGradientReady(1);
  client_->OnGradientReady(0);
  EXPECT_THAT(shards_[0]->pushes(), IsEmpty());
  client_->EndBackward({});
  ASSERT_EQ(client_->Wait(), absl::OkStatus());
  ASSERT_THAT(shards_[0]->pushes(), ::testing::Not(IsEmpty()));
  for (const PushHeader& push : shards_[0]->pushes()) {
    EXPECT_EQ(push.squared_norm(), SquaredNorm(/*from=*/0));
  }
}

TEST_F(PsClientTest, RunningMeansAreNoPartOfTheNorm) {
  worker::PsClient::Options options;
  options.clip_norm = true;
  options.regimes = kAsync;
  running_means_ = {true, false};
  SetUpCluster({3000, 70}, 1, options);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  ASSERT_EQ(RunStep(0), absl::OkStatus());
  ASSERT_THAT(shards_[0]->pushes(), ::testing::Not(IsEmpty()));
  for (const PushHeader& push : shards_[0]->pushes()) {
    EXPECT_EQ(push.squared_norm(), SquaredNorm(/*from=*/1));
  }
}

TEST_F(PsClientTest, ARunningMeanThatIsNotFiniteFailsTheJob) {
  worker::PsClient::Options options;
  options.clip_norm = true;
  options.regimes = kAsync;
  running_means_ = {true, false};
  SetUpCluster({3000, 70}, 1, options);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  memory_->gradients[0][12] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(RunStep(0),
            absl::FailedPreconditionError("the gradient of clock 0 is not "
                                          "finite: element 12 of tensor 0"));
}

worker::PsClient::Options Compressing(const TrainingRegime& regime) {
  worker::PsClient::Options options;
  options.regimes = RegimeSchedule(regime);
  options.compressor.compression = regime.compression;
  options.carry_over = std::make_shared<worker::CarryOver>();
  return options;
}

// It travels in float32, whatever values travel in.
TEST_F(PsClientTest, ACompressedGradientIsClippedBeyondTheRangeOfTheWireType) {
  worker::PsClient::Options options =
      Compressing({.wire_type = ElementType::kFloat16,
                   .compression = {.kind = GradientCompression::Kind::kDgc,
                                   .fraction = 0.5}});
  options.clip_before_compression = 1;
  SetUpCluster({3000, 70}, 1, options);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  memory_->gradients[0][12] = 1e6f;
  client_->BeginStep({.clock = 0, .sample_count = 3, .pull = false});
  client_->OnGradientReady(1);
  client_->OnGradientReady(0);
  client_->EndBackward({});
  EXPECT_EQ(client_->Wait(), absl::OkStatus());
  EXPECT_THAT(shards_[0]->pushes(), ::testing::Not(IsEmpty()));
}

// The client of the next step may be another one, which has none of these
// answers.
TEST_F(PsClientTest, ACutThatTellsOfASkippedStepUndoesIt) {
  for (const bool is_chief : {true, false}) {
    worker::PsClient::Options options = Compressing(
        {.compression = {.kind = GradientCompression::Kind::kTopK}});
    options.compressor.may_be_undone = true;
    options.on_non_finite = OnNonFinite::kSkipStep;
    shards_.clear();
    SetUpCluster({3000, 70}, 1, options);
    ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
    client_->BeginStep({.clock = 0, .sample_count = 3, .pull = false});
    client_->OnGradientReady(1);
    client_->OnGradientReady(0);
    client_->EndBackward({});
    ASSERT_EQ(client_->Wait(), absl::OkStatus());
    const worker::GradientCompressor& compressor =
        *options.carry_over->compressor;
    EXPECT_THAT(compressor.residual(0), Contains(::testing::Ne(0)));
    shards_[0]->SaySkippedThrough(1);
    ASSERT_EQ(is_chief ? client_->PullCut(/*cut_id=*/9, /*clock=*/1)
                       : client_->AwaitCut(/*cut_id=*/9, /*clock=*/1),
              absl::OkStatus());
    client_.reset();
    EXPECT_THAT(compressor.residual(0), Each(0));
  }
}

// Remembers what is saved: cut and clock.
class NotingSaver : public worker::ResidualSaver {
 public:
  void Save(uint64_t cut_id, int64_t clock,
            const worker::GradientCompressor&) override {
    saved.emplace_back(cut_id, clock);
  }
  std::vector<std::pair<uint64_t, int64_t>> saved;
};

// The routing may change between a checkpoint's cut and the next step, whose
// client then is another one; that may be given the step before it once more.
TEST_F(PsClientTest, ResidualsOfACheckpointOutliveAChangeOfTheRouting) {
  for (const bool repeats_the_step : {false, true}) {
    const auto saver = std::make_shared<NotingSaver>();
    worker::PsClient::Options options = Compressing(
        {.compression = {.kind = GradientCompression::Kind::kTopK}});
    options.residuals = saver;
    const auto set_up = [&] {
      client_.reset();
      shards_.clear();
      SetUpCluster({3000, 70}, 1, options);
    };
    set_up();
    ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
    ASSERT_EQ(RunStep(0), absl::OkStatus());
    shards_[0]->SayCheckpointCut(77);
    ASSERT_EQ(RunStep(1), absl::OkStatus());
    EXPECT_THAT(saver->saved, IsEmpty()) << "the next step has not begun";
    set_up();
    ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
    if (repeats_the_step) {
      ASSERT_EQ(RunStep(1), absl::OkStatus());
      EXPECT_THAT(saver->saved, IsEmpty());
    }
    ASSERT_EQ(RunStep(2), absl::OkStatus());
    ASSERT_EQ(RunStep(3), absl::OkStatus());
    EXPECT_THAT(saver->saved, ElementsAre(Pair(77, 2))) << "once";
  }
}

}  // namespace
}  // namespace syncline
