// Goal: a clock with a clipped norm or a trust ratio is applied when all its
// reductions are done, and a clock that is not finite is skipped. Method:
// examples with two workers and two blocks.

#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/server/consistency/consistency_controller_fixture.h"

namespace syncline::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(ControllerTest, AClippedNormHoldsBackEveryBlock) {
  Open({.clip_norm = true});
  Init();
  Push(2, 0, 0, {0, 1});
  EXPECT_THAT(Push(3, 1, 0, {0, 1}),
              ElementsAre(Kind::kBufferGradient, Kind::kReduceGradients,
                          Kind::kBufferGradient, Kind::kReduceGradients,
                          Kind::kSendNorms, Kind::kAck));
  EXPECT_THAT(Pull(4, 0, 1, {0}), IsEmpty());
  controller_->OnReductionDelayed({0}, absl::UnavailableError("ps:1 is away"));
  Tick(absl::Seconds(6));
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr("the global norm of clock 0 (ps:1 is away)"));
  EXPECT_THAT(Pull(5, 0, 1, {0}), IsEmpty());
  ShardActions actions;
  controller_->OnReduced({0}, 25.0, kStart, &actions);
  EXPECT_THAT(Kinds(actions),
              ElementsAre(Kind::kApply, Kind::kApply, Kind::kRead));
  EXPECT_EQ(actions[0].squared_norm, 25.0);
  actions.clear();
  controller_->OnReduced({0}, 25.0, kStart, &actions);
  EXPECT_THAT(actions, IsEmpty());
}

TEST_F(ControllerTest, ATrustRatioCutsTheStepInTwo) {
  Open({.trust_ratio = true});
  Init();
  Push(2, 0, 0, {0, 1});
  EXPECT_THAT(Push(3, 1, 0, {0, 1}),
              ElementsAre(Kind::kBufferGradient, Kind::kComputeLambUpdate,
                          Kind::kBufferGradient, Kind::kComputeLambUpdate,
                          Kind::kSendNorms, Kind::kAck));
  EXPECT_EQ(last_[4].stage, ReductionStage::kTrust);
  EXPECT_THAT(Pull(4, 0, 1, {0}), IsEmpty());
  ShardActions actions;
  controller_->OnReduced({0, ReductionStage::kGradient}, 1, kStart, &actions);
  EXPECT_THAT(actions, IsEmpty()) << "not what is waited for";
  controller_->OnReduced({0, ReductionStage::kTrust}, -1, kStart, &actions);
  EXPECT_THAT(Kinds(actions),
              ElementsAre(Kind::kApply, Kind::kApply, Kind::kRead));
}

TEST_F(ControllerTest, AClippedNormComesBeforeTheTrustRatio) {
  Open({.clip_norm = true, .trust_ratio = true});
  Init();
  Push(2, 0, 0, {0});
  Push(2, 0, 0, {1});
  EXPECT_THAT(
      Push(3, 1, 0, {1}, 1),
      ElementsAre(Kind::kBufferGradient, Kind::kReduceGradients,
                  Kind::kReduceGradients, Kind::kSendNorms, Kind::kAck));
  EXPECT_EQ(last_[3].stage, ReductionStage::kGradient);
  ShardActions actions;
  controller_->OnReduced({0, ReductionStage::kGradient}, 25, kStart, &actions);
  EXPECT_THAT(Kinds(actions),
              ElementsAre(Kind::kComputeLambUpdate, Kind::kComputeLambUpdate,
                          Kind::kSendNorms));
  EXPECT_EQ(actions[0].squared_norm, 25);
  EXPECT_EQ(actions[2].stage, ReductionStage::kTrust);
  actions.clear();
  controller_->OnReduced({0, ReductionStage::kGradient}, 25, kStart, &actions);
  EXPECT_THAT(actions, IsEmpty()) << "a repeat";
  Tick(absl::Seconds(1));
  EXPECT_THAT(Pull(4, 0, 1, {0}), IsEmpty());
  Tick(absl::Seconds(6));
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr("the norms of all tensors of clock 0"));
  controller_->OnReduced({0, ReductionStage::kTrust}, -1, kStart, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kApply, Kind::kApply));
}

// Rows are stepped without their table's norm: they wait for no reduction.
TEST_F(ControllerTest, SlotsHaveNoTrustRatio) {
  Open({.trust_ratio = true, .slot_count = 1});
  ShardActions actions;
  controller_->OnInit(1, 0, 10, {0}, kStart, &actions);
  Push(2, 0, 0, {0, 1});
  EXPECT_THAT(Push(3, 1, 0, {0, 1}),
              ElementsAre(Kind::kBufferGradient, Kind::kComputeLambUpdate,
                          Kind::kBufferGradient, Kind::kApply, Kind::kSendNorms,
                          Kind::kAck));
  EXPECT_THAT(Pull(4, 0, 1, {1}), ElementsAre(Kind::kRead));
  actions.clear();
  controller_->OnReduced({0, ReductionStage::kTrust}, -1, kStart, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kApply));
}

TEST_F(ControllerTest, SlotsAreClippedBeforeTheTrustRatio) {
  Open({.clip_norm = true, .trust_ratio = true, .slot_count = 1});
  ShardActions actions;
  controller_->OnInit(1, 0, 10, {0}, kStart, &actions);
  Push(2, 0, 0, {0, 1});
  EXPECT_THAT(Push(3, 1, 0, {0, 1}),
              ElementsAre(Kind::kBufferGradient, Kind::kReduceGradients,
                          Kind::kBufferGradient, Kind::kReduceGradients,
                          Kind::kSendNorms, Kind::kAck));
  actions.clear();
  controller_->OnReduced({0, ReductionStage::kGradient}, 25, kStart, &actions);
  EXPECT_THAT(
      Kinds(actions),
      ElementsAre(Kind::kApply, Kind::kComputeLambUpdate, Kind::kSendNorms));
  EXPECT_EQ(actions[0].block, 1u);
  EXPECT_EQ(actions[0].squared_norm, 25);
  actions.clear();
  controller_->OnReduced({0, ReductionStage::kTrust}, -1, kStart, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kApply));
  EXPECT_EQ(actions[0].block, 0u);
}

// A shard without tensors has no norm of a tensor to wait for.
TEST_F(ControllerTest, AShardOfSlotsAloneIsDoneWithTheGradientsNorm) {
  Open({.clip_norm = true, .trust_ratio = true, .slot_count = 2});
  ShardActions actions;
  controller_->OnInit(1, 0, 10, {}, kStart, &actions);
  Push(2, 0, 0, {0, 1});
  Push(3, 1, 0, {0, 1});
  Pull(4, 0, 1, {0});
  actions.clear();
  controller_->OnReduced({0, ReductionStage::kGradient}, 25, kStart, &actions);
  EXPECT_THAT(Kinds(actions),
              ElementsAre(Kind::kApply, Kind::kApply, Kind::kRead));
}

TEST_F(ControllerTest, ANormThatIsNotFiniteSkipsTheClock) {
  Open({.skip_non_finite = true, .slot_count = 1});
  ShardActions actions;
  controller_->OnInit(1, 0, 10, {0}, kStart, &actions);
  Push(2, 0, 0, {0, 1});
  EXPECT_THAT(Push(3, 1, 0, {0, 1}),
              ElementsAre(Kind::kBufferGradient, Kind::kReduceGradients,
                          Kind::kBufferGradient, Kind::kReduceGradients,
                          Kind::kSendNorms, Kind::kAck));
  EXPECT_THAT(Pull(4, 0, 1, {0}), IsEmpty());
  actions.clear();
  controller_->OnReduced({0}, std::numeric_limits<double>::infinity(), kStart,
                         &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kDropGradients,
                                          Kind::kDropGradients, Kind::kRead));
  EXPECT_EQ(last_.back().skipped_through, 1);
  EXPECT_EQ(controller_->skipped_clocks(), 1u);
  Push(5, 0, 1, {0, 1});
  Push(6, 1, 1, {0, 1});
  actions.clear();
  controller_->OnReduced({1}, 3, kStart, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kApply, Kind::kApply));
  EXPECT_EQ(controller_->skipped_clocks(), 1u);
}

// The report comes with the close of a worker, before any block is complete.
TEST_F(ControllerTest, AWorkersWordSkipsTheClockToo) {
  for (const uint32_t slots : {0u, 1u}) {
    SCOPED_TRACE(slots);
    Open({.skip_non_finite = true, .slot_count = slots});
    ShardActions actions;
    const std::vector<BlockIndex> dense = {0, 1};
    controller_->OnInit(1, 0, 10, absl::MakeConstSpan(dense).first(2 - slots),
                        kStart, &actions);
    PushFacts without;
    without.non_finite = true;
    EXPECT_THAT(Push(2, 0, 0, {0}),
                ElementsAre(Kind::kBufferGradient, Kind::kAck));
    EXPECT_THAT(Push(3, 1, without),
                ElementsAre(Kind::kDropGradients, Kind::kAck));
    EXPECT_THAT(
        Push(4, 0, 0, {1}),
        ElementsAre(Kind::kBufferGradient, Kind::kDropGradients, Kind::kAck));
    EXPECT_EQ(controller_->skipped_clocks(), 1u);
    EXPECT_THAT(Pull(5, 0, 1, {0}), ElementsAre(Kind::kRead));
    EXPECT_EQ(last_[0].skipped_through, 1);
  }
  // Nothing is skipped where the job does not say so.
  OpenAndInit(ConsistencyMode::kSync);
  PushFacts without;
  without.non_finite = true;
  Push(2, 1, without);
  EXPECT_THAT(Push(3, 0, 0, {0, 1}),
              ElementsAre(Kind::kBufferGradient, Kind::kApply,
                          Kind::kBufferGradient, Kind::kApply, Kind::kAck));
  EXPECT_EQ(controller_->skipped_clocks(), 0u);
  EXPECT_EQ(controller_->left_out_pushes(1), 1u);
  // At the next clock there is no gradient at all.
  without.clock = 1;
  Push(4, 0, without);
  Push(5, 1, without);
  EXPECT_EQ(controller_->skipped_clocks(), 1u);
  EXPECT_EQ(controller_->left_out_pushes(1), 1u);
  EXPECT_EQ(controller_->left_out_pushes(0), 0u);
}

TEST_F(ControllerTest, EachPushWithoutGradientCountsWhereNobodyWaits) {
  for (const auto mode :
       {ConsistencyMode::kAsync, ConsistencyMode::kBoundedStaleness}) {
    OpenAndInit(mode);
    PushFacts without;
    without.non_finite = true;
    Push(2, 0, without);
    Push(3, 1, without);
    without.clock = 1;
    Push(4, 0, without);
    Push(5, 0, without);  // again
    Push(6, 1, 1, {0, 1});
    EXPECT_EQ(controller_->skipped_clocks(), 3u);
    EXPECT_EQ(controller_->left_out_pushes(0), 0u);
  }
}

TEST_F(ControllerTest, AsyncNormsAreOfTheMean) {
  Open({.regimes = In(ConsistencyMode::kAsync), .clip_norm = true});
  Init();
  PushFacts push;
  push.sample_count = 10;
  push.blocks_in_clock = 1;
  push.blocks = {1};
  push.squared_norm = 900;
  EXPECT_THAT(Push(2, 0, push),
              ElementsAre(Kind::kBufferGradient, Kind::kApply, Kind::kAck));
  EXPECT_EQ(last_[1].squared_norm, 9.0);
}

}  // namespace
}  // namespace syncline::ps
