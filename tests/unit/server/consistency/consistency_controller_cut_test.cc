// Goal: a cut holds pushes until it ends, an evaluator reads at cuts and pushes
// nothing, and activities extend waits. Method: examples with two workers and
// two blocks.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/server/consistency/consistency_controller_fixture.h"

namespace syncline::ps {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

TEST_F(ControllerTest, ACutHoldsPushesUntilItEnds) {
  OpenAndInit(ConsistencyMode::kAsync);
  ASSERT_TRUE(BeginCut(7, {1, 0}).ok());
  EXPECT_THAT(Push(2, 1, 0, {0, 1}), IsEmpty());
  EXPECT_THAT(Pull(3, 0, 0, {0, 1}, 7), IsEmpty());
  EXPECT_THAT(
      Push(4, 0, 0, {0, 1}),
      ElementsAre(Kind::kBufferGradient, Kind::kApply, Kind::kBufferGradient,
                  Kind::kApply, Kind::kAck, Kind::kRead));
  EXPECT_TRUE(BeginCut(7, {1, 0}).ok());  // a repeat
  ShardActions actions;
  ASSERT_TRUE(controller_->OnEndCut(0, 10, 7, kStart, &actions).ok());
  EXPECT_THAT(Kinds(actions),
              ElementsAre(Kind::kBufferGradient, Kind::kApply,
                          Kind::kBufferGradient, Kind::kApply, Kind::kAck));
  EXPECT_TRUE(controller_->OnEndCut(0, 10, 7, kStart, &actions).ok());
  EXPECT_EQ(controller_->OnEndCut(0, 10, 8, kStart, &actions).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(ControllerTest, ACutThatIsNeverEndedIsGivenUp) {
  OpenAndInit(ConsistencyMode::kAsync);
  ASSERT_TRUE(BeginCut(7, {0, 0}).ok());  // passed at once, held for 3 s
  EXPECT_THAT(Push(2, 1, 0, {0, 1}), IsEmpty());
  EXPECT_THAT(Tick(absl::Seconds(2)), IsEmpty());
  EXPECT_THAT(Tick(absl::Seconds(3)),
              ElementsAre(Kind::kBufferGradient, Kind::kApply,
                          Kind::kBufferGradient, Kind::kApply, Kind::kAck));
  EXPECT_EQ(controller_->abandoned_cuts(), 1u);
  EXPECT_THAT(Pull(3, 0, 0, {0}, 7), ElementsAre(Kind::kFail));
  EXPECT_EQ(failure_.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(failure_.message()), HasSubstr("was abandoned"));
}

TEST_F(ControllerTest, CutsThatCannotBeAreRefused) {
  OpenAndInit(ConsistencyMode::kBoundedStaleness);
  Push(2, 0, 0, {0, 1});
  Push(3, 0, 1, {0});
  const absl::Status past = BeginCut(7, {1, 3});
  EXPECT_EQ(past.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(controller_->smallest_cut(), ElementsAre(2, 3))
      << "none below those that were asked for";
  EXPECT_THAT(std::string(past.message()),
              HasSubstr("smallest possible one is at clocks 2,3"));
  EXPECT_EQ(BeginCut(7, {2}).code(), absl::StatusCode::kInvalidArgument);
  // Worker 1 would be held at 2 while the chief, which reads at its own clock
  // before it awaits the cut, needs it at 3.
  const absl::Status apart = BeginCut(7, {4, 2});
  EXPECT_EQ(apart.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(apart.message()), HasSubstr("2 apart"));
  EXPECT_THAT(controller_->smallest_cut(), ElementsAre(4, 3));
  EXPECT_TRUE(BeginCut(7, {4, 3}).ok());
  EXPECT_EQ(BeginCut(7, {4, 4}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(controller_->smallest_cut(), IsEmpty());
  EXPECT_THAT(Pull(9, 0, 0, {0}, 8), ElementsAre(Kind::kFail));
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr("cut 8 is not announced"));
}

// The clocks come from a peer. Each way to refuse a cut reads one clock of each
// worker.
TEST_F(ControllerTest, ACutWithoutAClockOfEachWorkerIsRefusedFirst) {
  OpenAndInit(ConsistencyMode::kAsync);
  ASSERT_TRUE(BeginCut(7, {0, 0}, CutUse::kRouting).ok());
  for (const std::vector<int64_t>& clocks :
       {std::vector<int64_t>{}, {4}, {4, 4, 4}}) {
    const absl::Status refused = BeginCut(8, clocks);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("has 2 workers"));
    EXPECT_THAT(controller_->smallest_cut(), IsEmpty());
  }
  EXPECT_EQ(BeginCut(8, {4, 4}).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(EndCut(7).ok());
  EXPECT_EQ(BeginCut(7, {0}).code(), absl::StatusCode::kInvalidArgument)
      << "also of a cut that has ended";
}

TEST_F(ControllerTest, CutsNeverCross) {
  OpenAndInit(ConsistencyMode::kAsync);
  ASSERT_TRUE(BeginCut(7, {4, 2}).ok());
  EXPECT_EQ(BeginCut(8, {5, 1}).code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(controller_->smallest_cut(), ElementsAre(5, 2));
  ASSERT_TRUE(BeginCut(9, {4, 2}).ok());
  ASSERT_TRUE(BeginCut(6, {4, 2}).ok()) << "before it, as its id says";
  ASSERT_TRUE(BeginCut(5, {3, 1}).ok());
  EXPECT_EQ(BeginCut(10, {9, 9}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(controller_->smallest_cut(), ElementsAre(9, 9))
      << "once one of them has ended";
}

TEST_F(ControllerTest, ASnapshotLiesBetweenThePushesBelowAndAboveItsCut) {
  OpenAndInit(ConsistencyMode::kAsync);
  ShardActions actions;
  ASSERT_TRUE(controller_
                  ->OnBeginCut(0, 10, 7, {1, 0}, absl::Seconds(3), kStart,
                               &actions, CutUse::kCheckpoint)
                  .ok());
  EXPECT_THAT(Push(2, 1, 0, {0, 1}), IsEmpty());
  EXPECT_THAT(
      Push(3, 0, 0, {0, 1}),
      ElementsAre(Kind::kBufferGradient, Kind::kApply, Kind::kBufferGradient,
                  Kind::kApply, Kind::kAck, Kind::kSnapshot));
  EXPECT_EQ(last_.back().cut_id, 7u);
  EXPECT_THAT(last_.back().cut_clocks, ElementsAre(1, 0));
  EXPECT_THAT(Push(4, 0, 1, {0, 1}), IsEmpty());
  EXPECT_THAT(Tick(absl::Seconds(2)), IsEmpty()) << "one snapshot of a cut";
  EXPECT_THAT(Tick(absl::Seconds(3)), Not(Contains(Kind::kSnapshot)));
}

// The pull that comes with the push which passes the cut is read behind the
// snapshot, as are those that have waited for it.
TEST_F(ControllerTest, ValuesAtACutAreReadBehindItsSnapshot) {
  OpenAndInit(ConsistencyMode::kSync);
  ShardActions actions;
  ASSERT_TRUE(controller_
                  ->OnBeginCut(0, 10, 7, {1, 1}, absl::Seconds(3), kStart,
                               &actions, CutUse::kCheckpoint)
                  .ok());
  const auto push_and_pull = [&](CallToken token, uint32_t rank) {
    return Call({.token = token,
                 .rank = rank,
                 .incarnation = 10 + rank,
                 .deadline = kStart + absl::Seconds(5),
                 .push = PushFacts{.clock = 0,
                                   .sample_count = 8,
                                   .blocks_in_clock = 2,
                                   .blocks = {0, 1}},
                 .pull = PullFacts{1, {0, 1}, /*cut_id=*/0}});
  };
  EXPECT_THAT(push_and_pull(2, 0), Not(Contains(Kind::kRead)));
  push_and_pull(3, 1);
  std::vector<CallToken> read;
  bool is_behind = false;
  for (const ShardAction& action : last_) {
    is_behind |= action.kind == Kind::kSnapshot;
    if (action.kind != Kind::kRead) continue;
    EXPECT_TRUE(is_behind) << action.token;
    read.push_back(action.token);
  }
  EXPECT_THAT(read, UnorderedElementsAre(2, 3));
}

TEST_F(ControllerTest, AWaitNamesThePurposeOfTheCut) {
  OpenAndInit(ConsistencyMode::kAsync);
  ShardActions actions;
  ASSERT_TRUE(controller_
                  ->OnBeginCut(0, 10, 7, {1, 0}, absl::Seconds(60), kStart,
                               &actions, CutUse::kCheckpoint)
                  .ok());
  EXPECT_THAT(Push(2, 1, 0, {0, 1}), IsEmpty());
  EXPECT_THAT(Tick(absl::Seconds(5)), ElementsAre(Kind::kFail));
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr("waiting for the checkpoint cut at clocks 1,0; "
                        "missing: chief:0"));
}

TEST_F(ControllerTest, AnActivityCountsIfItSaysMoreThanTheLast) {
  OpenAndInit(ConsistencyMode::kSync);
  EXPECT_EQ(controller_->moved_at(), kStart);
  int seconds = 0;
  const auto counts = [&](int64_t clock, uint64_t done) {
    const absl::Time now = kStart + absl::Seconds(++seconds);
    EXPECT_TRUE(
        controller_->OnActivity(0, 10, {clock, "evaluating", done, 9}, now)
            .ok());
    return controller_->moved_at() == now;
  };
  EXPECT_TRUE(counts(0, 0));
  EXPECT_FALSE(counts(0, 0)) << "a repeat";
  EXPECT_TRUE(counts(0, 5));
  EXPECT_FALSE(counts(0, 4)) << "late";
  EXPECT_TRUE(counts(1, 0)) << "told before its push has arrived here";
  EXPECT_EQ(controller_->ActivityText(0), "") << "not of the open clock";
  Push(2, 0, 0, {0, 1});
  EXPECT_EQ(controller_->ActivityText(0), "evaluating, 0 of 9");
  EXPECT_FALSE(counts(0, 9)) << "of a closed clock";
  EXPECT_EQ(
      controller_->OnActivity(0, 99, {2, "evaluating", 1, 9}, kStart).code(),
      absl::StatusCode::kFailedPrecondition);
}

// The ps did not hear the workers either.
TEST_F(ControllerTest, TheTimeInWhichThePsWasFrozenIsNobodysSilence) {
  OpenAndInit(ConsistencyMode::kSync);
  EXPECT_THAT(Pull(2, 0, 1), IsEmpty());
  EXPECT_THAT(Push(3, 0, 1, {0}), IsEmpty());
  controller_->OnFrozen(absl::Seconds(60), kStart + absl::Seconds(60));
  EXPECT_THAT(Tick(absl::Seconds(64)), IsEmpty());
  EXPECT_EQ(controller_->moved_at(), kStart + absl::Seconds(60));
  EXPECT_THAT(Tick(absl::Seconds(65)), ElementsAre(Kind::kFail, Kind::kFail));
}

// A call may come between the end of the freeze and the tick that notices it.
TEST_F(ControllerTest, NothingHasMovedInTheFuture) {
  OpenAndInit(ConsistencyMode::kSync);
  Push(3, 0, 0, {0});
  ASSERT_EQ(controller_->moved_at(), kStart);
  controller_->OnFrozen(absl::Seconds(60), kStart + absl::Milliseconds(20));
  EXPECT_EQ(controller_->moved_at(), kStart + absl::Milliseconds(20));
}

TEST_F(ControllerTest, ACutIsHeldForAsMuchLonger) {
  OpenAndInit(ConsistencyMode::kSync);
  ASSERT_TRUE(BeginCut(7, {0, 0}).ok());
  controller_->OnFrozen(absl::Seconds(60), kStart + absl::Seconds(60));
  Tick(absl::Seconds(62));
  EXPECT_EQ(controller_->abandoned_cuts(), 0u);
  Tick(absl::Seconds(63));
  EXPECT_EQ(controller_->abandoned_cuts(), 1u);
}

class EvaluatorTest : public ControllerTest {
 protected:
  static constexpr uint32_t kRank = 2;  // of 0 and 1, who are workers

  void SetUp() override {
    ConsistencyController::Options options;
    options.regimes = In(mode_);
    options.evaluator = {12, "evaluator:0 at e:3"};
    Open(std::move(options));
    ASSERT_TRUE(BeginCut(1, {1, 1}).ok());
    Init();
  }
  absl::Status BeginNext() {
    ShardActions actions;
    return controller_->OnBeginCut(kRank, 12, 2, {2, 2}, absl::Seconds(60),
                                   kStart, &actions);
  }
  std::vector<Kind> End(uint64_t cut_id) {
    ShardActions actions;
    EXPECT_TRUE(
        controller_->OnEndCut(kRank, 12, cut_id, kStart, &actions).ok());
    return Kinds(actions);
  }
  // True if the report counted as progress.
  bool Says(uint64_t done, absl::Duration after) {
    const absl::Time now = kStart + after;
    EXPECT_TRUE(
        controller_
            ->OnActivity(kRank, 12, {1, "evaluating clock 1", done, 9}, now)
            .ok());
    return controller_->moved_at() == now;
  }
  void BothPush(int64_t clock) {
    Push(100 + 2 * clock, 0, clock, {0, 1});
    Push(101 + 2 * clock, 1, clock, {0, 1});
  }

  ConsistencyMode mode_ = ConsistencyMode::kSync;
};

TEST_F(EvaluatorTest, ReadsAndEndsTheCutsThatHoldTheWorkers) {
  EXPECT_THAT(Pull(2, kRank, 0, {0, 1}, 1), IsEmpty());
  Push(3, 0, 0, {0, 1});
  EXPECT_THAT(Push(4, 1, 0, {0, 1}), Contains(Kind::kRead));
  ASSERT_TRUE(BeginNext().ok());
  EXPECT_THAT(Push(5, 0, 1, {0, 1}), IsEmpty()) << "held by the cut";
  EXPECT_THAT(End(1), Contains(Kind::kBufferGradient));
}

TEST_F(EvaluatorTest, WaitsForNoPushOfItsOwn) {
  EXPECT_THAT(Pull(2, kRank, 0), ElementsAre(Kind::kRead));
  EXPECT_THAT(Pull(3, kRank, 1), IsEmpty()) << "for those of the workers";
  BothPush(0);
  EXPECT_THAT(last_, Contains(::testing::Field(&ShardAction::token, 3u)));
}

TEST_F(EvaluatorTest, PushesNothingAndFillsNothingIn) {
  EXPECT_THAT(Push(2, kRank, 0, {0, 1}), ElementsAre(Kind::kFail));
  EXPECT_EQ(failure_.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr("by evaluator:0 at e:3: it is the job's evaluator"));
  EXPECT_EQ(controller_->CheckChief(kRank, 12).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Pull(3, kRank + 1, 0), ElementsAre(Kind::kFail));
  EXPECT_THAT(std::string(failure_.message()), HasSubstr("ranks 0 to 2"));
}

TEST_F(EvaluatorTest, ItsActivityCountsWhereACutHoldsTheWorkers) {
  EXPECT_FALSE(Says(1, absl::Seconds(1))) << "they are to move themselves";
  BothPush(0);
  EXPECT_TRUE(Says(2, absl::Seconds(2)));
  EXPECT_FALSE(Says(2, absl::Seconds(3))) << "a repeat";
  ASSERT_TRUE(BeginNext().ok());
  End(1);
  EXPECT_FALSE(Says(3, absl::Seconds(4)));
}

TEST_F(EvaluatorTest, IsNamedByWhomItHolds) {
  BothPush(0);
  EXPECT_TRUE(Says(3, absl::Seconds(1)));
  EXPECT_THAT(Push(9, 1, 1, {0, 1}), IsEmpty());
  EXPECT_THAT(Tick(absl::Seconds(5)), ElementsAre(Kind::kFail));
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr("the end of the epoch cut at clock 1 by evaluator:0 "
                        "at e:3 (last heard of evaluating clock 1, 3 of 9)"));
}

class AsyncEvaluatorTest : public EvaluatorTest {
 protected:
  AsyncEvaluatorTest() { mode_ = ConsistencyMode::kAsync; }
};

TEST_F(AsyncEvaluatorTest, ReadsAtOnce) {
  EXPECT_THAT(Pull(2, kRank, 5), ElementsAre(Kind::kRead));
}

TEST_F(ControllerTest, AnOverduePullSaysWhatTheMissingWereHeardOf) {
  OpenAndInit(ConsistencyMode::kSync);
  ASSERT_TRUE(
      controller_->OnActivity(0, 10, {0, "evaluating", 3, 9}, kStart).ok());
  Push(2, 1, 0, {0, 1});
  EXPECT_THAT(Pull(3, 1, 1), IsEmpty());
  EXPECT_THAT(Tick(absl::Seconds(5)), ElementsAre(Kind::kFail));
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr("missing: chief:0 at a:1 (clock 0, nothing of it yet; "
                        "last heard of evaluating, 3 of 9)"));
}

TEST_F(ControllerTest, OnlyWhatIsNewComesForward) {
  OpenAndInit(ConsistencyMode::kAsync);
  const auto push_at = [&](CallToken token, absl::Duration after) {
    PushFacts push;
    push.clock = 0;
    push.sample_count = 8;
    push.blocks_in_clock = 2;
    push.blocks = {0};
    ShardActions actions;
    controller_->OnCall({.token = token,
                         .rank = 1,
                         .incarnation = 11,
                         .deadline = kStart + absl::Hours(1),
                         .push = std::move(push)},
                        kStart + after, &actions);
    return controller_->moved_at() == kStart + after;
  };
  EXPECT_TRUE(push_at(2, absl::Seconds(1)));
  EXPECT_FALSE(push_at(3, absl::Seconds(2))) << "a repeat";
}

}  // namespace
}  // namespace syncline::ps
