// Clocks that end without some workers: what one shard does. The whole job,
// with its arbiter, is in tests/simulation/quorum_test.cc.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/server/consistency/consistency_controller_fixture.h"

namespace syncline::ps {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class QuorumTest : public ControllerTest {
 protected:
  void SetUp() override {
    ConsistencyController::Options options;
    options.quorum = {.needed = 1, .timeout = {}};
    Open(std::move(options));
    Init();
  }
  std::vector<Kind> Fix(int64_t clock, std::vector<uint32_t> ranks) {
    ShardActions actions;
    EXPECT_OK(controller_->OnQuorum(clock, ranks, kStart, &actions));
    return Kinds(actions);
  }
  // Of the last event.
  const ShardAction& Find(Kind kind) {
    for (const ShardAction& action : last_) {
      if (action.kind == kind) return action;
    }
    ADD_FAILURE() << "no such action";
    return last_.front();
  }
};

TEST_F(QuorumTest, NothingIsAppliedBeforeTheSetIsFixed) {
  EXPECT_THAT(Push(2, 0, 0, {0, 1}), Contains(Kind::kSendCloses));
  EXPECT_THAT(Find(Kind::kSendCloses).ranks, ElementsAre(0));
  EXPECT_THAT(Push(3, 1, 0, {0, 1}), Not(Contains(Kind::kApply)));
  EXPECT_THAT(Find(Kind::kSendCloses).ranks, ElementsAre(0, 1));
  EXPECT_THAT(Pull(4, 0, 1), IsEmpty());
  EXPECT_THAT(Fix(0, {0, 1}),
              ElementsAre(Kind::kApply, Kind::kApply, Kind::kRead));
  EXPECT_EQ(last_[0].sample_count, 16u);
  EXPECT_EQ(Find(Kind::kRead).open_clock, 1);
  EXPECT_EQ(Find(Kind::kRead).min_clock, 1);
}

TEST_F(QuorumTest, TheGradientOfAWorkerThatIsLeftBehindHasNoEffect) {
  Push(2, 0, 0, {0, 1});
  Push(3, 1, 0, {1});  // a part
  EXPECT_THAT(Fix(0, {0}),
              ElementsAre(Kind::kApply, Kind::kDropGradientOf, Kind::kApply));
  EXPECT_EQ(last_[0].sample_count, 8u);
  EXPECT_EQ(last_[1].rank, 1u);
  EXPECT_EQ(last_[1].block, 1u);
  EXPECT_EQ(controller_->worker(1).closed(), 1);
  EXPECT_EQ(controller_->behind(1).clocks, 1u);
  EXPECT_EQ(controller_->behind(1).samples, 8u);
  // The rest of it, and its repeats.
  EXPECT_THAT(Push(4, 1, 0, {0}), ElementsAre(Kind::kAck));
  EXPECT_TRUE(last_[0].dropped);
  EXPECT_THAT(Push(5, 1, 0, {1}), ElementsAre(Kind::kAck));
  EXPECT_TRUE(last_[0].dropped);
  EXPECT_EQ(controller_->behind(1).samples, 8u) << "counted once";
  // A repeat of what was applied is none of that.
  EXPECT_THAT(Push(6, 0, 0, {1}), ElementsAre(Kind::kAck));
  EXPECT_FALSE(last_[0].dropped);
}

// A late gradient that is pushed at a later clock, and comes too late again: in
// whole, and as a part when the clock is applied.
TEST_F(QuorumTest, AGradientThatIsLateTwiceCountsOnce) {
  for (int64_t clock = 0; clock < 2; ++clock) {
    Push(10 + clock, 0, clock, {0, 1});
    Fix(clock, {0});
  }
  Push(20, 1, 0, {0, 1});
  EXPECT_EQ(controller_->behind(1).samples, 8u);
  PushFacts late{.clock = 1,
                 .sample_count = 8,
                 .is_late = true,
                 .blocks_in_clock = 2,
                 .blocks = {0, 1}};
  EXPECT_THAT(Push(21, 1, late), ElementsAre(Kind::kAck));
  EXPECT_TRUE(last_[0].dropped);
  EXPECT_EQ(controller_->behind(1).samples, 8u);
  late.clock = 2;
  late.blocks = {1};
  Push(22, 1, late);
  Push(12, 0, 2, {0, 1});
  Fix(2, {0});
  EXPECT_EQ(controller_->behind(1).samples, 8u);
  EXPECT_EQ(controller_->behind(1).clocks, 3u);
  Push(13, 0, 3, {0, 1});
  Fix(3, {0});
  Push(23, 1, 3, {0, 1});
  EXPECT_EQ(controller_->behind(1).samples, 16u) << "another one";
}

TEST_F(QuorumTest, ALateWorkerReadsTheOpenClockAndGoesOnThere) {
  for (int64_t clock = 0; clock < 3; ++clock) {
    Push(10 + clock, 0, clock, {0, 1});
    Fix(clock, {0});
  }
  EXPECT_THAT(Push(20, 1, 0, {0, 1}), ElementsAre(Kind::kAck));
  EXPECT_TRUE(last_[0].dropped);
  EXPECT_THAT(Pull(21, 1, 1), ElementsAre(Kind::kRead));
  EXPECT_EQ(last_[0].open_clock, 3);
  EXPECT_EQ(last_[0].min_clock, 0) << "none of its own is in it";
  EXPECT_EQ(controller_->behind(1).clocks, 3u);
  Push(22, 1, 3, {0, 1});
  Push(23, 0, 3, {0, 1});
  EXPECT_THAT(Fix(3, {0, 1}), ElementsAre(Kind::kApply, Kind::kApply));
  EXPECT_EQ(last_[0].sample_count, 16u);
}

TEST_F(QuorumTest, TheLastClockEndsForAll) {
  PushFacts last;
  last.sample_count = 8;
  last.blocks_in_clock = 2;
  last.blocks = {0, 1};
  last.finished = true;
  Push(2, 0, last);
  ASSERT_OK(BeginCut(5, {1, 1}, CutUse::kCheckpoint));
  EXPECT_THAT(Pull(3, 0, 0, {0}, 5), IsEmpty());
  EXPECT_THAT(Fix(0, {0}), ElementsAre(Kind::kApply, Kind::kApply,
                                       Kind::kSnapshot, Kind::kRead));
  EXPECT_TRUE(controller_->worker(1).finished());
  EXPECT_THAT(Push(4, 1, 0, {0, 1}), ElementsAre(Kind::kAck));
  EXPECT_TRUE(last_[0].dropped);
  EXPECT_THAT(Pull(5, 1, 1), ElementsAre(Kind::kRead));
}

TEST_F(QuorumTest, ACutIsNotPassedBeforeItsClocksAreApplied) {
  ASSERT_OK(BeginCut(5, {1, 1}, CutUse::kCheckpoint));
  Push(2, 0, 0, {0, 1});
  EXPECT_THAT(Push(3, 1, 0, {0, 1}), Not(Contains(Kind::kSnapshot)))
      << "both have closed the clock, and nothing is applied";
  EXPECT_THAT(Push(4, 0, 1, {0, 1}), IsEmpty()) << "parked";
  EXPECT_THAT(Fix(0, {0}), ElementsAre(Kind::kDropGradientOf, Kind::kApply,
                                       Kind::kDropGradientOf, Kind::kApply,
                                       Kind::kSnapshot));
}

// The job goes to other ps before the workers hear of the clocks that they have
// pushed.
TEST_F(QuorumTest, AStateSaysWhoWasLeftBehind) {
  ASSERT_OK(BeginCut(5, {3, 3}, CutUse::kRouting));
  for (int64_t clock = 0; clock < 3; ++clock) {
    Push(10 + clock, 0, clock, {0, 1});
    if (clock == 0) Push(20, 1, clock, {0, 1});
    Fix(clock,
        clock == 0 ? std::vector<uint32_t>{0, 1} : std::vector<uint32_t>{0});
  }
  ASSERT_OK_AND_ASSIGN(const ControllerState state, controller_->Export(5));
  EXPECT_EQ(state.workers[0].clocks_behind, 0);
  EXPECT_EQ(state.workers[1].closed, 3);
  EXPECT_EQ(state.workers[1].clocks_behind, 2);
  const auto open = [&](bool begins_attempt) {
    ConsistencyController::Options options;
    options.quorum = {.needed = 1, .timeout = {}};
    Open(std::move(options));
    EXPECT_OK(controller_->Import(state, begins_attempt, kStart));
  };
  open(/*begins_attempt=*/false);
  EXPECT_THAT(Push(30, 1, 1, {0, 1}), ElementsAre(Kind::kAck));
  EXPECT_TRUE(last_[0].dropped) << "as its first push was, or would have been";
  EXPECT_THAT(Push(31, 1, 0, {0, 1}), ElementsAre(Kind::kAck));
  EXPECT_FALSE(last_[0].dropped);
  EXPECT_THAT(Push(32, 0, 2, {0, 1}), ElementsAre(Kind::kAck));
  EXPECT_FALSE(last_[0].dropped);
  EXPECT_THAT(Pull(33, 1, 2), ElementsAre(Kind::kRead));
  EXPECT_EQ(last_[0].open_clock, 3);
  EXPECT_EQ(last_[0].min_clock, 1) << "clock 0 alone has its gradient";
  EXPECT_THAT(Pull(34, 0, 3), ElementsAre(Kind::kRead));
  EXPECT_EQ(last_[0].min_clock, 3);
  // A new attempt has new workers, which begin there.
  open(/*begins_attempt=*/true);
  Init();
  EXPECT_THAT(Pull(35, 1, 3), ElementsAre(Kind::kRead));
  EXPECT_EQ(last_[0].min_clock, 3);
}

TEST_F(QuorumTest, ASetOfAnotherClockChangesNothing) {
  Push(2, 0, 0, {0, 1});
  EXPECT_THAT(Fix(1, {0}), IsEmpty());
  Fix(0, {0});
  EXPECT_THAT(Fix(0, {0}), IsEmpty());
}

TEST_F(QuorumTest, ASetThatCannotBe) {
  Push(2, 0, 0, {0, 1});
  ShardActions actions;
  EXPECT_TRUE(
      absl::IsInternal(controller_->OnQuorum(0, {{0, 1}}, kStart, &actions)));
  EXPECT_TRUE(absl::IsInternal(controller_->OnQuorum(0, {}, kStart, &actions)));
  EXPECT_THAT(actions, IsEmpty());
  EXPECT_THAT(Fix(0, {0}), Contains(Kind::kApply));
}

TEST_F(QuorumTest, AnOverduePullSaysWhatItWaitsFor) {
  Push(2, 0, 0, {0, 1});
  Pull(3, 0, 1);
  controller_->OnQuorumDelayed(0, absl::UnavailableError("ps:0 is away"));
  Tick(absl::Seconds(6));
  EXPECT_THAT(std::string(failure_.message()),
              AllOf(HasSubstr("clock 0, which ends once 1 workers have closed "
                              "it on all shards: 1 have here (ps:0 is away)"),
                    HasSubstr("missing: worker:0 at b:2")));
}

class LossTest : public QuorumTest {
 protected:
  void SetUp() override {
    ConsistencyController::Options options;
    options.quorum = {.needed = 2, .loses_workers = true};
    Open(std::move(options));
    Init();
  }
  std::vector<Kind> Lose(int64_t clock, std::vector<uint32_t> ranks) {
    ShardActions actions;
    const std::vector<uint32_t> removed = {1};
    EXPECT_OK(controller_->OnQuorum(clock, ranks, kStart, &actions, removed));
    return Kinds(actions);
  }
};

TEST_F(LossTest, TheOthersGoOnWithoutALostWorker) {
  Push(2, 0, 0, {0, 1});
  Push(3, 1, 0, {1});  // a part
  Pull(4, 0, 1);
  EXPECT_EQ(controller_->lost_workers(), nullptr);
  EXPECT_THAT(Lose(0, {0}), ElementsAre(Kind::kApply, Kind::kDropGradientOf,
                                        Kind::kApply, Kind::kRead));
  ASSERT_NE(controller_->lost_workers(), nullptr);
  EXPECT_EQ(controller_->lost_workers()->at(0).rank, 1u);
  EXPECT_EQ(controller_->lost_workers()->at(0).first_clock, 1);
  EXPECT_TRUE(controller_->worker(1).finished());
  EXPECT_EQ(controller_->min_clock(), 1);
  // It wakes up, and has no effect.
  EXPECT_THAT(Push(5, 1, 0, {0}), ElementsAre(Kind::kFail));
  EXPECT_TRUE(absl::IsFailedPrecondition(last_[0].status));
  EXPECT_THAT(std::string(last_[0].status.message()),
              HasSubstr("was lost, and the others go on without it from clock "
                        "1"));
  EXPECT_THAT(Pull(6, 1, 1), ElementsAre(Kind::kFail));
  Push(7, 0, 1, {0, 1});
  EXPECT_THAT(Lose(1, {0}), ElementsAre(Kind::kApply, Kind::kApply));
  EXPECT_EQ(last_[0].sample_count, 8u);
  EXPECT_EQ(controller_->lost_workers()->size(), 1u) << "a repeat";
  EXPECT_TRUE(controller_->worker(1).finished());
  EXPECT_EQ(controller_->behind(1).clocks, 0u) << "it is not late";
}

TEST_F(LossTest, CallsOfALostWorkerThatWaitAreEnded) {
  Push(2, 0, 0, {0, 1});
  Push(3, 1, 0, {0, 1});
  Pull(4, 1, 1);
  Push(5, 1, 1, {0, 1});
  // All shards had its gradient.
  const auto kinds = Lose(0, {0, 1});
  EXPECT_THAT(kinds, Contains(Kind::kApply));
  EXPECT_EQ(last_[0].sample_count, 16u);
  EXPECT_THAT(kinds, Contains(Kind::kFail).Times(2));
  EXPECT_EQ(controller_->parked_pushes() + controller_->parked_pulls(), 0u);
}

TEST_F(LossTest, AnotherWorkerCanTakeItsPlaceInALaterAttempt) {
  for (int64_t clock = 0; clock < 4; ++clock) {
    Push(10 + clock, 0, clock, {0, 1});
    Lose(clock, {0});
  }
  ShardActions actions;
  EXPECT_OK(controller_->OnBeginCut(0, 10, 5, {4, 4}, absl::Hours(1), kStart,
                                    &actions, CutUse::kCheckpoint));
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kSnapshot));
  ASSERT_OK_AND_ASSIGN(const ControllerState state, controller_->Export(5));
  EXPECT_EQ(state.workers[1].closed, 4);
  EXPECT_FALSE(state.workers[1].finished);
  // A state does not say who was lost.
  EXPECT_TRUE(absl::IsInvalidArgument(controller_->OnBeginCut(
      0, 10, 6, {5, 5}, absl::Hours(1), kStart, &actions, CutUse::kRouting)));
}

}  // namespace
}  // namespace syncline::ps
