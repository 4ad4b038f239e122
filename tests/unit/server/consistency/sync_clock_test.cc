// Goal: a block's gradients are applied when all workers have delivered it, and
// wait where the job needs a norm over more than the block.
// Method: two workers and three blocks, of which one is a slot of a table; the
// actions of each event, for each kind of job.

#include "server/consistency/sync_clock.h"

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = ShardAction::Kind;

constexpr uint32_t kWorkers = 2;
constexpr uint32_t kBlocks = 3;
constexpr BlockIndex kSlot = 2;

ConsistencyOptions Options() {
  ConsistencyOptions options;
  options.workers.resize(kWorkers);
  options.block_count = kBlocks;
  options.slot_count = 1;
  return options;
}

class SyncClockTest : public ::testing::Test {
 protected:
  void Begin(const ConsistencyOptions& options = Options()) {
    clock_.emplace(options);
    clock_->Begin(kWorkers);
    ledgers_.assign(kWorkers, PushLedger(kBlocks));
  }
  // A whole clock of one worker; true: the clock has ended.
  bool Push(uint32_t rank, const std::vector<BlockIndex>& blocks,
            bool non_finite = false) {
    PushFacts push;
    push.clock = ledgers_[rank].closed();
    push.sample_count = non_finite ? 0 : 4;
    push.blocks_in_clock = static_cast<uint32_t>(blocks.size());
    push.blocks = blocks;
    push.non_finite = non_finite;
    EXPECT_TRUE(ledgers_[rank].Open(push));
    clock_->OnStarted(rank, push);
    for (const BlockIndex block : blocks) {
      EXPECT_TRUE(ledgers_[rank].Receive(block));
      clock_->OnGradient(block, &actions_);
    }
    ledgers_[rank].Close();
    return clock_->OnClosed(rank, ledgers_[rank], &actions_);
  }
  // "apply 0" and the like, since the last call.
  std::vector<std::string> Actions() {
    std::vector<std::string> texts;
    for (const ShardAction& action : std::exchange(actions_, {})) {
      switch (action.kind) {
        case Kind::kApply:
          texts.push_back(absl::StrCat("apply ", action.block));
          break;
        case Kind::kReduceGradients:
          texts.push_back(absl::StrCat("reduce ", action.block));
          break;
        case Kind::kComputeLambUpdate:
          texts.push_back(absl::StrCat("update ", action.block));
          break;
        case Kind::kDropGradients:
          texts.push_back(absl::StrCat("drop ", action.block));
          break;
        case Kind::kSendNorms:
          texts.push_back(action.stage == ReductionStage::kGradient
                              ? "send gradient"
                              : "send trust");
          break;
        default:
          texts.push_back("another");
      }
      if (!(action.kind == Kind::kDropGradients))
        samples_ = action.sample_count;
    }
    return texts;
  }

  std::optional<SyncClock> clock_;
  std::vector<PushLedger> ledgers_;
  ShardActions actions_;
  uint64_t samples_ = 0;
};

TEST_F(SyncClockTest, ABlockIsAppliedWhenAllWorkersHaveDeliveredIt) {
  Begin();
  EXPECT_FALSE(Push(0, {0, 1, kSlot}));
  EXPECT_THAT(Actions(), IsEmpty());
  EXPECT_FALSE(clock_->HasApplied(0, 1));
  EXPECT_TRUE(Push(1, {0, kSlot}));
  EXPECT_THAT(Actions(), ElementsAre("apply 0", "apply 2", "apply 1"))
      << "a worker that has closed the clock delivers nothing more of it";
  EXPECT_EQ(samples_, 8u);
  EXPECT_EQ(clock_->clock(), 1);
  EXPECT_TRUE(clock_->HasApplied(kSlot, 1));
  EXPECT_TRUE(clock_->HasApplied(1));
  EXPECT_FALSE(clock_->HasApplied(2));
}

TEST_F(SyncClockTest, ABlockCountsAsAppliedBeforeTheClockEnds) {
  Begin();
  Push(0, {0, 1});
  PushFacts push;
  push.sample_count = 4;
  push.blocks_in_clock = 2;
  push.blocks = {0};
  ledgers_[1].Open(push);
  clock_->OnStarted(1, push);
  ledgers_[1].Receive(0);
  clock_->OnGradient(0, &actions_);
  EXPECT_THAT(Actions(), ElementsAre("apply 0"));
  EXPECT_TRUE(clock_->HasApplied(0, 1));
  EXPECT_FALSE(clock_->HasApplied(1, 1));
  EXPECT_FALSE(clock_->HasApplied(1));
}

TEST_F(SyncClockTest, WithAGradientNormNothingIsAppliedBeforeIt) {
  ConsistencyOptions options = Options();
  options.clip_norm = true;
  Begin(options);
  Push(0, {0, kSlot});
  EXPECT_FALSE(Push(1, {0}));
  EXPECT_THAT(Actions(), ElementsAre("reduce 0", "reduce 2", "send gradient"));
  EXPECT_TRUE(clock_->IsReducing());
  EXPECT_FALSE(clock_->IsReducing({0, ReductionStage::kTrust}));
  const ReductionRound round = {0, ReductionStage::kGradient};
  ASSERT_TRUE(clock_->IsReducing(round));
  clock_->OnReductionDelayed(round, absl::UnavailableError("ps 0 is away"));
  EXPECT_EQ(clock_->ReductionText(),
            "the global norm of clock 0 (ps 0 is away)");
  EXPECT_TRUE(clock_->OnReduced(round, 9, &actions_));
  EXPECT_EQ(actions_.front().squared_norm, 9);
  EXPECT_THAT(Actions(), ElementsAre("apply 0", "apply 2"));
  EXPECT_FALSE(clock_->IsReducing());
}

// A row's step takes no norm of a tensor, so slots are applied at once.
TEST_F(SyncClockTest, WithTrustRatiosOnlyTensorsWait) {
  ConsistencyOptions options = Options();
  options.trust_ratio = true;
  Begin(options);
  Push(0, {0, kSlot});
  EXPECT_FALSE(Push(1, {0, kSlot}));
  EXPECT_THAT(Actions(), ElementsAre("update 0", "apply 2", "send trust"));
  EXPECT_TRUE(clock_->HasApplied(kSlot, 1));
  EXPECT_FALSE(clock_->HasApplied(0, 1));
  EXPECT_TRUE(clock_->OnReduced({0, ReductionStage::kTrust}, -1, &actions_));
  EXPECT_THAT(Actions(), ElementsAre("apply 0"));
}

TEST_F(SyncClockTest, BothReductionsComeOneAfterTheOther) {
  ConsistencyOptions options = Options();
  options.trust_ratio = true;
  options.clip_norm = true;
  Begin(options);
  Push(0, {0, kSlot});
  Push(1, {0, kSlot});
  EXPECT_THAT(Actions(), ElementsAre("reduce 0", "reduce 2", "send gradient"));
  EXPECT_FALSE(clock_->OnReduced({0, ReductionStage::kGradient}, 4, &actions_));
  EXPECT_THAT(Actions(), ElementsAre("apply 2", "update 0", "send trust"));
  EXPECT_TRUE(clock_->OnReduced({0, ReductionStage::kTrust}, -1, &actions_));
  EXPECT_THAT(Actions(), ElementsAre("apply 0"));
}

TEST_F(SyncClockTest, AGradientThatIsNotFiniteSkipsTheClock) {
  ConsistencyOptions options = Options();
  options.skip_non_finite = true;
  Begin(options);
  // By a worker's word: known before anything is applied.
  Push(0, {}, /*non_finite=*/true);
  EXPECT_EQ(clock_->SkippedThrough(0), 0) << "values without this clock";
  EXPECT_EQ(clock_->SkippedThrough(1), 1) << "values with it";
  EXPECT_TRUE(Push(1, {0}));
  EXPECT_THAT(Actions(), ElementsAre("drop 0"));
  EXPECT_EQ(clock_->skipped_clocks(), 1u);
  clock_->Begin(kWorkers);
  EXPECT_EQ(clock_->SkippedThrough(1), 1);
  EXPECT_EQ(clock_->SkippedThrough(2), 1);
  // By the norm.
  Push(0, {0});
  EXPECT_FALSE(Push(1, {0}));
  EXPECT_THAT(Actions(), ElementsAre("reduce 0", "send gradient"));
  EXPECT_TRUE(clock_->OnReduced({1, ReductionStage::kGradient},
                                std::numeric_limits<double>::infinity(),
                                &actions_));
  EXPECT_THAT(Actions(), ElementsAre("drop 0"));
  EXPECT_EQ(clock_->skipped_clocks(), 2u);
  EXPECT_EQ(clock_->SkippedThrough(2), 2);
  EXPECT_EQ(clock_->left_out_pushes(0), 0u);
}

TEST_F(SyncClockTest, WithoutThatAWorkerIsLeftOutAlone) {
  Begin();
  Push(0, {}, /*non_finite=*/true);
  EXPECT_TRUE(Push(1, {0}));
  EXPECT_THAT(Actions(), ElementsAre("apply 0"));
  EXPECT_EQ(clock_->left_out_pushes(0), 1u);
  EXPECT_EQ(clock_->left_out_pushes(1), 0u);
  EXPECT_EQ(clock_->skipped_clocks(), 0u);
  clock_->Begin(kWorkers);
  Push(0, {}, /*non_finite=*/true);
  EXPECT_TRUE(Push(1, {}, /*non_finite=*/true));
  EXPECT_EQ(clock_->skipped_clocks(), 1u) << "no gradient was left";
}

TEST_F(SyncClockTest, AClockGoesOnFromAState) {
  Begin();
  clock_->Import(5, /*skipped_clocks=*/2, /*skipped_through=*/5, {0, 3});
  clock_->Begin(kWorkers);
  for (PushLedger& worker : ledgers_) worker.Import(5, /*finished=*/false);
  EXPECT_EQ(clock_->clock(), 5);
  EXPECT_TRUE(clock_->HasApplied(0, 5));
  EXPECT_FALSE(clock_->HasApplied(0, 6));
  EXPECT_EQ(clock_->skipped_clocks(), 2u);
  EXPECT_EQ(clock_->SkippedThrough(5), 5);
  EXPECT_EQ(clock_->left_out_pushes(1), 3u);
  EXPECT_FALSE(Push(0, {0, 1}));
  EXPECT_TRUE(Push(1, {0}));
  EXPECT_EQ(clock_->clock(), 6);
}

TEST_F(SyncClockTest, SyncBeginsAtAnyClock) {
  Begin();
  clock_->StartAt(40);
  clock_->Begin(kWorkers);
  EXPECT_EQ(clock_->clock(), 40);
  EXPECT_TRUE(clock_->HasApplied(40));
  EXPECT_TRUE(clock_->HasApplied(/*block=*/1, 40));
  EXPECT_FALSE(clock_->HasApplied(/*block=*/1, 41));
}

}  // namespace
}  // namespace syncline::ps
