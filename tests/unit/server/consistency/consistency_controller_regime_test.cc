// Goal: where the regime changes, each clock obeys its own, and where SYNC
// begins or ends nothing of one side meets the other.
// Method: two workers around a border, one event at a time; see
// tests/simulation for all the orders that nobody thought of.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/server/consistency/consistency_controller_fixture.h"

namespace syncline::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RegimeTest : public ControllerTest {
 protected:
  // From clock 1 on the job trains by `next`.
  void OpenInThen(ConsistencyMode first, TrainingRegime next) {
    next.first_clock = 1;
    RegimeSchedule regimes = In(first);
    ASSERT_OK(regimes.Add(next, 0));
    Open({.regimes = regimes});
    Init();
  }
  absl::Status Change(const TrainingRegime& regime) {
    ShardActions actions;
    const absl::Status status = controller_->OnRegime(regime, kStart, &actions);
    changed_ = Kinds(actions);
    return status;
  }
  std::vector<Kind> changed_;
};

TEST_F(RegimeTest, ABoundHoldsForItsClocks) {
  OpenInThen(ConsistencyMode::kAsync,
             {.mode = ConsistencyMode::kBoundedStaleness});
  EXPECT_THAT(Pull(2, 0, 0), ElementsAre(Kind::kRead));
  EXPECT_THAT(Push(3, 0, 0, {0, 1}),
              ElementsAre(Kind::kBufferGradient, Kind::kApply,
                          Kind::kBufferGradient, Kind::kApply, Kind::kAck));
  EXPECT_THAT(Pull(4, 0, 1), IsEmpty()) << "bound 0";
  EXPECT_THAT(
      Push(5, 1, 0, {0, 1}),
      ElementsAre(Kind::kBufferGradient, Kind::kApply, Kind::kBufferGradient,
                  Kind::kApply, Kind::kAck, Kind::kRead));
}

TEST_F(RegimeTest, AsyncFollowsSyncOnceAllOfItIsApplied) {
  OpenInThen(ConsistencyMode::kSync, {.mode = ConsistencyMode::kAsync});
  Push(2, 0, 0, {0, 1});
  EXPECT_THAT(Pull(3, 0, 1), IsEmpty()) << "its own push is not applied yet";
  EXPECT_THAT(Push(4, 0, 1, {0, 1}), IsEmpty());
  // SYNC's pushes are applied with both gradients, then the parked one alone.
  EXPECT_THAT(Push(5, 1, 0, {0, 1}),
              ElementsAre(Kind::kBufferGradient, Kind::kApply,
                          Kind::kBufferGradient, Kind::kApply, Kind::kAck,
                          Kind::kRead, Kind::kBufferGradient, Kind::kApply,
                          Kind::kBufferGradient, Kind::kApply, Kind::kAck));
  EXPECT_EQ(last_[1].sample_count, 16u);
  EXPECT_EQ(last_[7].sample_count, 8u);
  EXPECT_THAT(Pull(6, 0, 2), ElementsAre(Kind::kRead));
}

TEST_F(RegimeTest, SyncFollowsAsyncOnceAllHaveComeToItsClock) {
  OpenInThen(ConsistencyMode::kAsync, {});
  Push(2, 0, 0, {0, 1});
  EXPECT_THAT(Pull(3, 0, 1), IsEmpty());
  EXPECT_THAT(Push(4, 0, 1, {0, 1}), IsEmpty());
  EXPECT_THAT(Tick(absl::Seconds(6)), ElementsAre(Kind::kFail, Kind::kFail));
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr("missing: worker:0 at b:2 (clock 0"));
  EXPECT_THAT(Push(5, 0, 1, {0, 1}), IsEmpty());
  // The parked push is buffered, not applied: it is one of SYNC.
  EXPECT_THAT(
      Push(6, 1, 0, {0, 1}),
      ElementsAre(Kind::kBufferGradient, Kind::kApply, Kind::kBufferGradient,
                  Kind::kApply, Kind::kAck, Kind::kBufferGradient,
                  Kind::kBufferGradient, Kind::kAck));
  EXPECT_THAT(Push(7, 1, 1, {0, 1}),
              ElementsAre(Kind::kBufferGradient, Kind::kApply,
                          Kind::kBufferGradient, Kind::kApply, Kind::kAck));
  EXPECT_EQ(last_[1].sample_count, 16u);
  EXPECT_EQ(controller_->min_clock(), 2);
}

// SYNC's first values are final block by block, as those of each of its clocks.
TEST_F(RegimeTest, TheFirstValuesOfSyncWaitForTheirBlocksAlone) {
  OpenInThen(ConsistencyMode::kAsync, {});
  Push(2, 0, 0, {0, 1});
  Push(3, 1, 0, {0});
  EXPECT_THAT(Pull(4, 1, 1, {0}), ElementsAre(Kind::kRead));
  EXPECT_THAT(Pull(5, 1, 1, {1}), IsEmpty());
}

TEST_F(RegimeTest, ACutAtTheBorderHoldsBothSides) {
  OpenInThen(ConsistencyMode::kAsync, {});
  ASSERT_OK(BeginCut(1, {1, 1}));
  Push(2, 0, 0, {0, 1});
  EXPECT_THAT(Push(3, 0, 1, {0, 1}), IsEmpty());
  Push(4, 1, 0, {0, 1});
  EXPECT_THAT(Pull(5, 0, 0, {0, 1}, /*cut_id=*/1), ElementsAre(Kind::kRead));
  EXPECT_EQ(controller_->parked_pushes(), 1u);
  ShardActions actions;
  ASSERT_OK(controller_->OnEndCut(0, 10, 1, kStart, &actions));
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kBufferGradient,
                                          Kind::kBufferGradient, Kind::kAck));
}

TEST_F(RegimeTest, ARegimeComesWhileTheJobRuns) {
  OpenAndInit(ConsistencyMode::kAsync);
  Push(2, 0, 0, {0, 1});
  Push(3, 0, 1, {0});  // begun, not closed
  const absl::Status late = Change({.first_clock = 1});
  EXPECT_EQ(late.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(late.message()),
              HasSubstr("job j on ps:0 at p:9: a regime from clock 1: that "
                        "clock has begun; the smallest possible one is 2"));
  EXPECT_OK(Change({.first_clock = 2}));
  EXPECT_OK(Change({.first_clock = 2}));  // a repeat
  EXPECT_EQ(Change({.first_clock = 2, .learning_rate_factor = 2}).code(),
            absl::StatusCode::kInvalidArgument);
  Push(4, 0, 1, {1});
  EXPECT_THAT(Push(5, 0, 2, {0, 1}), IsEmpty()) << "SYNC waits for all";
}

// A worker that is held at 1 would keep the other from reading at 5.
TEST_F(RegimeTest, AnAnnouncedCutCanBeReachedUnderTheRegimeThatComes) {
  OpenAndInit(ConsistencyMode::kAsync);
  ASSERT_OK(BeginCut(1, {1, 5}));
  const absl::Status early = Change({.first_clock = 4});
  EXPECT_EQ(early.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(early.message()),
              HasSubstr("a regime from clock 4 would keep workers from the "
                        "epoch cut at clocks 1,5; the smallest possible "
                        "one is 6"));
  EXPECT_OK(Change({.first_clock = 6}));
}

// As of an epoch that has just begun.
TEST_F(RegimeTest, ARegimeMayBeginBeforeAnAnnouncedCut) {
  OpenAndInit(ConsistencyMode::kAsync);
  ASSERT_OK(BeginCut(1, {9, 9}));
  ASSERT_OK(Change({.first_clock = 1}));
  Push(2, 0, 0, {0, 1});
  Push(3, 1, 0, {0, 1});
  EXPECT_THAT(
      Push(4, 0, 1, {0, 1}),
      ElementsAre(Kind::kBufferGradient, Kind::kBufferGradient, Kind::kAck))
      << "SYNC waits for the other";
}

// Blocks that were ready under the old bound are looked at again.
TEST_F(RegimeTest, AParkedPullObeysTheRegimeThatComes) {
  OpenAndInit(ConsistencyMode::kAsync);
  Push(2, 0, 0, {0});
  EXPECT_THAT(Pull(3, 0, 1), IsEmpty()) << "its own push of block 1 is missing";
  ASSERT_OK(
      Change({.first_clock = 1, .mode = ConsistencyMode::kBoundedStaleness}));
  Push(4, 1, 0, {1});
  EXPECT_THAT(Push(5, 0, 0, {1}),
              ElementsAre(Kind::kBufferGradient, Kind::kApply, Kind::kAck))
      << "the other's push of block 0 is missing";
  EXPECT_THAT(Push(6, 1, 0, {0}),
              ElementsAre(Kind::kBufferGradient, Kind::kApply, Kind::kAck,
                          Kind::kRead));
}

TEST_F(RegimeTest, AClosedJobTakesNone) {
  OpenAndInit(ConsistencyMode::kAsync);
  ShardActions actions;
  controller_->Close(absl::CancelledError("over"), &actions);
  EXPECT_EQ(Change({.first_clock = 1}).code(), absl::StatusCode::kCancelled);
}

// --- Changes at a cut ---

class RegimeCutTest : public RegimeTest {
 protected:
  static constexpr uint64_t kCut = 7;

  absl::Status Announce(int64_t clock, TrainingRegime regime,
                        uint64_t id = kCut) {
    regime.first_clock = clock;
    ShardActions actions;
    return controller_->OnBeginCut(0, 10, id, {clock, clock}, absl::Hours(1),
                                   kStart, &actions, CutUse::kRegime, regime);
  }
  absl::Status End(bool commit, uint64_t id = kCut) {
    ShardActions actions;
    const absl::Status status =
        controller_->OnEndCut(0, 10, id, kStart, &actions, commit);
    changed_ = Kinds(actions);
    return status;
  }
  size_t regimes() const { return controller_->regimes().regimes().size(); }
};

TEST_F(RegimeCutTest, TheRegimeIsInForceOnceItsCutIsCommitted) {
  OpenAndInit(ConsistencyMode::kAsync);
  ASSERT_OK(Announce(1, {}));
  EXPECT_EQ(controller_->RegimesAt(0, 0), 1u);
  EXPECT_EQ(controller_->RegimesAt(0, 1), 2u);
  Push(2, 0, 0, {0, 1});
  EXPECT_THAT(Pull(3, 0, 1), ElementsAre(Kind::kRead));
  EXPECT_THAT(Pull(4, 0, 1, {}), IsEmpty()) << "it is not decided";
  EXPECT_THAT(Push(5, 0, 1, {0, 1}), IsEmpty());
  EXPECT_THAT(std::string(End(/*commit=*/true).message()),
              HasSubstr("not all workers have come to it"));
  Push(6, 1, 0, {0, 1});
  ASSERT_OK(End(/*commit=*/true));
  // The pull that waited for the decision; the push is one of SYNC.
  EXPECT_THAT(changed_, ElementsAre(Kind::kRead, Kind::kBufferGradient,
                                    Kind::kBufferGradient, Kind::kAck));
  EXPECT_EQ(regimes(), 2u);
  ASSERT_OK(End(/*commit=*/true));  // a repeat
  EXPECT_EQ(regimes(), 2u);
}

TEST_F(RegimeCutTest, AChangeThatIsGivenUpLeavesTheModeAsItWas) {
  OpenAndInit(ConsistencyMode::kAsync);
  ASSERT_OK(Announce(1, {}));
  Push(2, 0, 0, {0, 1});
  EXPECT_THAT(Pull(3, 0, 1, {}), IsEmpty());
  ASSERT_OK(End(/*commit=*/false));
  EXPECT_THAT(changed_, ElementsAre(Kind::kRead));
  EXPECT_EQ(regimes(), 1u);
  EXPECT_EQ(controller_->RegimesAt(0, 1), 1u);
  EXPECT_THAT(Push(4, 0, 1, {0, 1}),
              ElementsAre(Kind::kBufferGradient, Kind::kApply,
                          Kind::kBufferGradient, Kind::kApply, Kind::kAck));
}

// A worker may compute a step as soon as it has the values, before anything of
// it has come.
TEST_F(RegimeCutTest, NoStepChangesWhoseValuesAWorkerMayHave) {
  OpenAndInit(ConsistencyMode::kAsync);
  Push(2, 0, 0, {0, 1});
  const absl::Status refused = Announce(1, {});
  EXPECT_TRUE(absl::IsOutOfRange(refused)) << refused;
  EXPECT_THAT(controller_->smallest_cut(), ElementsAre(2, 2));
  EXPECT_OK(Announce(2, {}));
}

// Its dense gradients have come, with the pull of the next clock; its rows have
// not, and bring no pull whose answer could say that the regime may change.
TEST_F(RegimeCutTest, NoStepChangesWhosePullMayBeAnsweredAlready) {
  OpenAndInit(ConsistencyMode::kAsync);
  Push(2, 0, 0, {0});
  EXPECT_THAT(Pull(3, 0, 1, {0}), ElementsAre(Kind::kRead));
  const absl::Status refused = Announce(1, {});
  EXPECT_TRUE(absl::IsOutOfRange(refused)) << refused;
  EXPECT_THAT(controller_->smallest_cut(), ElementsAre(2, 2));
  ASSERT_OK(Announce(2, {}));
  Push(4, 0, 0, {1});
  EXPECT_EQ(controller_->RegimesAt(0, 2), 2u);
}

TEST_F(RegimeCutTest, WhatCannotBeIsRefused) {
  OpenAndInit(ConsistencyMode::kAsync);
  ShardActions actions;
  const auto announce = [&](std::vector<int64_t> clocks,
                            std::optional<TrainingRegime> regime) {
    return std::string(controller_
                           ->OnBeginCut(0, 10, 9, std::move(clocks),
                                        absl::Hours(1), kStart, &actions,
                                        CutUse::kRegime, regime)
                           .message());
  };
  EXPECT_THAT(announce({2, 2}, std::nullopt), HasSubstr("without a regime"));
  EXPECT_THAT(announce({2, 3}, TrainingRegime{.first_clock = 2}),
              HasSubstr("one clock of all workers"));
  EXPECT_THAT(
      announce({2, 2},
               TrainingRegime{.first_clock = 2,
                              .strategy = TrainingRegime::Strategy::kAllReduce,
                              .wire_type = ElementType::kFloat16}),
      HasSubstr("with another wire type: that changes while the job trains "
                "through the ps, and its strategy stays"));
  EXPECT_THAT(
      announce({2, 2},
               TrainingRegime{
                   .first_clock = 2,
                   .strategy = TrainingRegime::Strategy::kAllReduce,
                   .compression = {.kind = GradientCompression::Kind::kInt8}}),
      HasSubstr("with another compression: that changes while the job trains "
                "through the ps, and its strategy stays"));
  PushFacts last;
  last.finished = true;
  Push(2, 1, std::move(last));
  EXPECT_THAT(announce({2, 2}, TrainingRegime{.first_clock = 2}),
              HasSubstr("worker:0 at b:2 has made its last step, clock 0"));
  EXPECT_EQ(regimes(), 1u);
}

// The chief ends the epoch's cut after the change, so it does not hold this up.
TEST_F(RegimeCutTest, AtTheEndOfAnEpochTheChangeIsNamed) {
  OpenAndInit(ConsistencyMode::kAsync);
  ShardActions actions;
  ASSERT_OK(controller_->OnBeginCut(0, 10, 1, {1, 1}, absl::Hours(1), kStart,
                                    &actions));
  ASSERT_OK(Announce(1, {}));
  Push(2, 0, 0, {0, 1});
  Push(3, 1, 0, {0, 1});
  EXPECT_THAT(Push(4, 1, 1, {0, 1}), IsEmpty());
  EXPECT_THAT(Tick(absl::Seconds(5)), ElementsAre(Kind::kFail));
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr("the end of the regime cut at clock 1 by chief:0"));
  ASSERT_OK(End(/*commit=*/false));
  EXPECT_THAT(Push(5, 1, 1, {0, 1}), IsEmpty());
  EXPECT_THAT(Tick(absl::Seconds(10)), ElementsAre(Kind::kFail));
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr("the end of the epoch cut at clock 1 by chief:0"));
}

TEST_F(RegimeCutTest, OtherCutsWaitForTheDecisionWhereItMatters) {
  OpenAndInit(ConsistencyMode::kAsync);
  ASSERT_OK(Announce(4, {}));
  EXPECT_TRUE(absl::IsFailedPrecondition(Announce(6, {}, 8)));
  EXPECT_OK(BeginCut(9, {6, 6}));
  EXPECT_TRUE(absl::IsFailedPrecondition(BeginCut(10, {7, 8})))
      << "not possible in SYNC";
  EXPECT_TRUE(
      absl::IsFailedPrecondition(BeginCut(11, {8, 8}, CutUse::kRouting)));
  ASSERT_OK(End(/*commit=*/false));
  EXPECT_OK(BeginCut(10, {7, 8}));
}

}  // namespace
}  // namespace syncline::ps
