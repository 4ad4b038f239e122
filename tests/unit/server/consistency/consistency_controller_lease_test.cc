// Leased data: what one shard does. Whole jobs, with several shards and
// attempts, are in tests/simulation/leased_clocks_test.cc.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/server/consistency/consistency_controller_fixture.h"

namespace syncline::ps {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Two workers; shard 0.
class LeaseTest : public ControllerTest {
 protected:
  void Begin(ConsistencyMode mode, int64_t total, bool deals = true) {
    Open({.regimes = In(mode), .leases = true, .deals_clocks = deals});
    controller_->GoOnTo(total);
    Init();
  }
  // Pushes a clock, and pulls the next one's values. `next` 0: it is the last,
  // of the job, too.
  std::vector<Kind> Step(CallToken token, uint32_t rank, int64_t clock,
                         int64_t next) {
    PushFacts push;
    push.clock = clock;
    push.close_until = next == 0 ? clock + 1 : next;
    push.finished = next == 0;
    push.sample_count = 8;
    push.blocks_in_clock = 2;
    push.blocks = {0, 1};
    return Call({.token = token,
                 .rank = rank,
                 .incarnation = 10 + rank,
                 .deadline = kStart + absl::Seconds(5),
                 .push = std::move(push),
                 .pull = next == 0 ? std::nullopt
                                   : std::optional(PullFacts{next, {0, 1}})});
  }
  // Of worker:0, rank 1.
  absl::StatusOr<ConsistencyController::LostLeases> LoseWorker() {
    ShardActions actions;
    return controller_->OnWorkerLost(1, kStart, &actions);
  }
  std::vector<Kind> Return(const std::vector<int64_t>& clocks) {
    ShardActions actions;
    EXPECT_OK(controller_->OnReturned(1, clocks, kStart, &actions));
    return Kinds(actions);
  }
  // The chief pushes a clock of worker:0's, whose next one is `next`; 0: it is
  // the last.
  std::vector<Kind> ForLost(CallToken token, int64_t clock, int64_t next) {
    PushFacts push;
    push.clock = clock;
    push.close_until = next == 0 ? 100 : next;
    push.finished = next == 0;
    push.sample_count = 8;
    push.blocks_in_clock = 2;
    push.blocks = {0, 1};
    return Call({.token = token,
                 .rank = 1,
                 .incarnation = 10,
                 .for_lost = true,
                 .deadline = kStart + absl::Seconds(5),
                 .push = std::move(push)});
  }
  std::vector<ReturnedLease> Returned() const {
    std::vector<ReturnedLease> returned;
    for (const ShardAction& action : last_) {
      if (action.kind == Kind::kRead) returned = action.returned;
    }
    return returned;
  }
  int64_t LeaseTold() const {
    for (const ShardAction& action : last_) {
      if (action.kind == Kind::kRead) return action.open_clock;
    }
    return -1;
  }
};

TEST_F(LeaseTest, AnswersSayWhatTheWorkerMakesAfterItsNextClock) {
  Begin(ConsistencyMode::kAsync, 100);
  EXPECT_THAT(Pull(2, 0, 0), ElementsAre(Kind::kRead));
  EXPECT_EQ(LeaseTold(), 2);
  EXPECT_THAT(Pull(3, 1, 1), ElementsAre(Kind::kRead));
  EXPECT_EQ(LeaseTold(), 3);
  EXPECT_THAT(Step(4, 1, 1, 3), Contains(Kind::kRead));
  EXPECT_EQ(LeaseTold(), 4);
  EXPECT_THAT(Step(5, 1, 3, 4), Contains(Kind::kRead));
  EXPECT_EQ(LeaseTold(), 5);
  EXPECT_THAT(Step(6, 0, 0, 2), Contains(Kind::kRead));
  EXPECT_EQ(LeaseTold(), 6);
  // A repeat deals nothing, and is told the same.
  EXPECT_THAT(Step(7, 0, 0, 2), ElementsAre(Kind::kAccept, Kind::kRead));
  EXPECT_EQ(LeaseTold(), 6);
  EXPECT_EQ(controller_->duplicate_blocks(), 2u);
}

TEST_F(LeaseTest, AClockOfAnotherWorkerIsRefused) {
  Begin(ConsistencyMode::kAsync, 100);
  EXPECT_THAT(Step(2, 1, 1, 2), ElementsAre(Kind::kFail));
  EXPECT_TRUE(absl::IsInvalidArgument(failure_)) << failure_;
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr("job j on ps:0 at p:9: push of clock 1 by worker:0 at "
                        "b:2, before 2; leased to it are 1 and then 3"));
  Begin(ConsistencyMode::kAsync, 4);
  EXPECT_THAT(Step(2, 0, 1, 2), IsEmpty()) << "not before its own clock 0";
  EXPECT_THAT(Step(3, 0, 0, 2), Contains(Kind::kRead));
  EXPECT_EQ(controller_->duplicate_blocks(), 2u) << "clock 1 is not its own";
  Begin(ConsistencyMode::kAsync, 100, /*deals=*/false);
  EXPECT_THAT(Step(2, 1, 1, 2), Contains(Kind::kRead)) << "shard 0 alone knows";
  EXPECT_EQ(LeaseTold(), 0);
}

TEST_F(LeaseTest, TheBoundIsToTheOldestLease) {
  Begin(ConsistencyMode::kBoundedStaleness, 100);  // bound 1
  EXPECT_THAT(Pull(2, 0, 0), ElementsAre(Kind::kRead));
  EXPECT_THAT(Pull(3, 1, 1), ElementsAre(Kind::kRead));
  EXPECT_THAT(Step(4, 1, 1, 3),
              ElementsAre(Kind::kBufferGradient, Kind::kApply,
                          Kind::kBufferGradient, Kind::kApply, Kind::kAccept))
      << "clock 3 may lack no clock below 2, and 0 is not there";
  EXPECT_THAT(Step(5, 0, 0, 2), Contains(Kind::kRead));
  EXPECT_EQ(controller_->min_clock(), 2);
  EXPECT_EQ(controller_->parked_pulls(), 0u);
}

TEST_F(LeaseTest, ACutIsAtOneClockWhateverIsLeased) {
  Begin(ConsistencyMode::kAsync, 100);
  // worker:0 has clock 1, and has pushed nothing of it.
  ASSERT_OK(BeginCut(1, {1, 1}, CutUse::kCheckpoint));
  EXPECT_THAT(Step(2, 1, 1, 3), IsEmpty()) << "it waits at the cut";
  EXPECT_THAT(Step(3, 0, 0, 2), Contains(Kind::kSnapshot));
  ASSERT_OK_AND_ASSIGN(const ControllerState state, controller_->Export(1));
  for (const ControllerState::Worker& worker : state.workers) {
    EXPECT_EQ(worker.closed, 1);
    EXPECT_FALSE(worker.finished);
  }
  ASSERT_OK(EndCut(1));
  EXPECT_EQ(controller_->worker(1).closed(), 3);
  // A later cut is behind the clocks that were pushed.
  EXPECT_TRUE(absl::IsOutOfRange(BeginCut(2, {1, 1}, CutUse::kCheckpoint)));
  EXPECT_THAT(std::vector<int64_t>(controller_->smallest_cut().begin(),
                                   controller_->smallest_cut().end()),
              ElementsAre(1, 2));
}

TEST_F(LeaseTest, AnAttemptGoesOnAtACutWithOtherWorkers) {
  Open({.regimes = In(ConsistencyMode::kAsync),
        .leases = true,
        .deals_clocks = true});
  ControllerState state;
  state.workers.assign(2, {.closed = 40});
  ASSERT_OK(controller_->Import(state, /*begins_attempt=*/true, kStart));
  controller_->GoOnTo(41);
  Init();
  EXPECT_EQ(controller_->worker(0).closed(), 40);
  EXPECT_FALSE(controller_->worker(0).finished());
  EXPECT_TRUE(controller_->worker(1).finished()) << "no clock is left for it";
  EXPECT_THAT(Step(2, 0, 40, 0), Contains(Kind::kAck));
  EXPECT_TRUE(controller_->worker(0).finished());
}

// A worker may have the values of its next clock already.
TEST_F(LeaseTest, ARegimeChangesBehindAllThatMayBeComputed) {
  Begin(ConsistencyMode::kAsync, 100);
  Step(2, 1, 1, 3);
  TrainingRegime regime;
  regime.mode = ConsistencyMode::kBoundedStaleness;
  regime.staleness_bound = 4;
  regime.first_clock = 3;
  ShardActions actions;
  EXPECT_TRUE(absl::IsOutOfRange(
      controller_->OnBeginCut(0, 10, 1, {3, 3}, absl::Seconds(3), kStart,
                              &actions, CutUse::kRegime, regime)));
  EXPECT_EQ(controller_->smallest_cut()[0], 4);
  regime.first_clock = 4;
  EXPECT_OK(controller_->OnBeginCut(0, 10, 1, {4, 4}, absl::Seconds(3), kStart,
                                    &actions, CutUse::kRegime, regime));
  // The chief has come to clock 4, worker:0 to clock 5: nothing of them counts.
  Step(3, 0, 0, 2);
  Step(4, 0, 2, 5);
  Step(5, 1, 3, 4);
  EXPECT_EQ(controller_->worker(0).closed(), 5);
  EXPECT_OK(controller_->OnEndCut(0, 10, 1, kStart, &actions, /*commit=*/true));
  EXPECT_EQ(controller_->regimes().At(4).bound(), 4);
  EXPECT_EQ(controller_->regimes().At(3).bound(), std::nullopt);
}

// At a cut between its clocks the chief evaluates, and the others wait for it.
TEST_F(LeaseTest, AReportAtACutBetweenTwoClocksCounts) {
  Begin(ConsistencyMode::kAsync, 100);
  Step(2, 0, 0, 2);
  EXPECT_OK(controller_->OnActivity(0, 10, {1, "evaluating clock 1", 3, 7},
                                    kStart + absl::Seconds(1)));
  EXPECT_EQ(controller_->ActivityText(0), "evaluating clock 1, 3 of 7");
  EXPECT_EQ(controller_->moved_at(), kStart + absl::Seconds(1));
  EXPECT_OK(controller_->OnActivity(0, 10, {0, "late", 3, 7}, kStart));
  EXPECT_EQ(controller_->ActivityText(0), "evaluating clock 1, 3 of 7");
}

// worker:0 has clocks 1 and 3, and is lost.
TEST_F(LeaseTest, NobodyButACutWaitsForALostWorker) {
  Begin(ConsistencyMode::kBoundedStaleness, 100);  // bound 1
  ASSERT_OK(BeginCut(7, {5, 5}, CutUse::kEvaluation));
  EXPECT_THAT(Step(2, 0, 0, 2), Contains(Kind::kRead));
  Step(3, 0, 2, 4);
  EXPECT_EQ(controller_->parked_pulls(), 1u) << "clock 4 may not lack clock 1";
  EXPECT_THAT(Pull(8, 0, 5, {0, 1}, 7), IsEmpty());
  ASSERT_OK_AND_ASSIGN(const auto leases, LoseWorker());
  EXPECT_EQ(leases.begun_until, 0);
  EXPECT_EQ(leases.whole_until, 0);
  EXPECT_THAT(leases.leased, ElementsAre(1, 3));
  EXPECT_EQ(leases.returned, std::nullopt);
  EXPECT_EQ(controller_->parked_pulls(), 1u) << "the cut's";
  EXPECT_THAT(Tick(absl::Seconds(6)), Contains(Kind::kFail));
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr("missing: chief:0 at a:1 (clock 4"));
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr("worker:0 at b:2 (clock 1, nothing of it yet; it was "
                        "lost, and the scheduler has not said yet which of its "
                        "clocks return)"));
  Return({1, 3});
  EXPECT_THAT(Pull(9, 0, 5, {0, 1}, 7), ElementsAre(Kind::kRead))
      << "the chief is to make clocks 1 and 3";
  ASSERT_OK(BeginCut(8, {4, 4}, CutUse::kCheckpoint));
  Step(10, 0, 4, 5);
  EXPECT_THAT(Tick(absl::Seconds(6)), Contains(Kind::kFail));
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr("it was lost, and chief:0 at a:1 makes its clocks)"));
  EXPECT_THAT(Pull(4, 1, 1), ElementsAre(Kind::kFail));
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr("worker:0 at b:2 was lost, and the others go on"));
}

TEST_F(LeaseTest, TheChiefMakesWhatReturns) {
  Begin(ConsistencyMode::kAsync, 100);
  ASSERT_OK(LoseWorker().status());
  // Before it is known what returns, its push waits.
  EXPECT_THAT(ForLost(2, 1, 3), IsEmpty());
  EXPECT_THAT(Return({1, 3}), Contains(Kind::kAck));
  EXPECT_EQ(controller_->worker(1).closed(), 3);
  EXPECT_THAT(ForLost(3, 1, 3), ElementsAre(Kind::kAck)) << "a repeat";
  EXPECT_EQ(controller_->duplicate_blocks(), 2u);
  // A pull says what is below its clock.
  EXPECT_THAT(Step(4, 0, 0, 2), Contains(Kind::kRead));
  EXPECT_THAT(Returned(), IsEmpty());
  EXPECT_THAT(Step(5, 0, 2, 4), Contains(Kind::kRead));
  EXPECT_THAT(Returned(), ElementsAre(ReturnedLease{1, 3, 0}));
  EXPECT_THAT(ForLost(6, 3, 0), Contains(Kind::kAck));
  EXPECT_TRUE(controller_->worker(1).finished());
  EXPECT_THAT(Step(7, 0, 4, 5), Contains(Kind::kRead));
  EXPECT_THAT(Returned(), IsEmpty());
  // A repeat of either command changes nothing.
  ASSERT_OK_AND_ASSIGN(const auto again, LoseWorker());
  EXPECT_THAT(*again.returned, ElementsAre(1, 3));
  Return({1});
  EXPECT_TRUE(controller_->worker(1).finished());
}

TEST_F(LeaseTest, ACutIsNotReachedWithoutWhatTheChiefHasToMake) {
  Begin(ConsistencyMode::kAsync, 100);
  ASSERT_OK(BeginCut(7, {2, 2}, CutUse::kCheckpoint));
  Step(2, 0, 0, 2);
  EXPECT_THAT(Pull(3, 0, 2, {0, 1}, 7), IsEmpty());
  ASSERT_OK(LoseWorker().status());
  EXPECT_EQ(controller_->parked_pulls(), 1u);
  // The pull is answered, without the cut's values.
  EXPECT_THAT(Return({1, 3}), ElementsAre(Kind::kRead));
  EXPECT_THAT(Returned(), ElementsAre(ReturnedLease{1, 1, 3}));
  EXPECT_THAT(ForLost(4, 1, 3), Contains(Kind::kSnapshot));
  EXPECT_THAT(Pull(5, 0, 2, {0, 1}, 7), ElementsAre(Kind::kRead));
  EXPECT_THAT(Returned(), IsEmpty()) << "clock 3 is behind the cut";
  EXPECT_THAT(ForLost(6, 3, 0), IsEmpty()) << "and waits there";
  ASSERT_OK(EndCut(7));
  EXPECT_TRUE(controller_->worker(1).finished());
}

// The last clock of a lost worker closes all behind it, which are others'.
TEST_F(LeaseTest, TheRegimeChangesBehindALoss) {
  Begin(ConsistencyMode::kAsync, 100);
  ASSERT_OK(LoseWorker().status());
  Return({1, 3});
  Step(2, 0, 0, 2);
  ForLost(3, 1, 3);
  ForLost(4, 3, 0);
  EXPECT_EQ(controller_->max_clock(), 4);
  Step(5, 0, 2, 5);
  TrainingRegime regime;
  regime.mode = ConsistencyMode::kBoundedStaleness;
  regime.staleness_bound = 4;
  regime.first_clock = 6;
  ShardActions actions;
  EXPECT_OK(controller_->OnBeginCut(0, 10, 1, {6, 6}, absl::Seconds(3), kStart,
                                    &actions, CutUse::kRegime, regime));
}

TEST_F(LeaseTest, ATornClockEndsWithWhatHasArrived) {
  Begin(ConsistencyMode::kAsync, 100);
  PushFacts push;
  push.clock = 1;
  push.close_until = 3;
  push.sample_count = 8;
  push.blocks_in_clock = 2;
  push.blocks = {0};
  Call({.token = 2,
        .rank = 1,
        .incarnation = 11,
        .deadline = kStart + absl::Seconds(5),
        .push = push});
  ASSERT_OK_AND_ASSIGN(const auto leases, LoseWorker());
  EXPECT_EQ(leases.begun_until, 2);
  EXPECT_EQ(leases.whole_until, 0);
  EXPECT_THAT(leases.leased, ElementsAre(3, 4));
  ShardActions actions;
  EXPECT_TRUE(absl::IsInvalidArgument(
      controller_->OnReturned(1, {1, 3}, kStart, &actions)))
      << "clock 1 has begun here";
  Return({3, 4});
  EXPECT_EQ(controller_->worker(1).closed(), 3);
}

TEST_F(LeaseTest, WhoCannotBeLost) {
  Open({.regimes = In(ConsistencyMode::kAsync), .leases = true});
  EXPECT_TRUE(absl::IsFailedPrecondition(LoseWorker().status()))
      << "the attempt has not begun";
  Begin(ConsistencyMode::kAsync, 100);
  ShardActions actions;
  for (const uint32_t rank : {0u, 2u}) {
    EXPECT_TRUE(absl::IsInvalidArgument(
        controller_->OnWorkerLost(rank, kStart, &actions).status()));
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(
      controller_->OnReturned(1, {1}, kStart, &actions)));
  EXPECT_THAT(ForLost(2, 1, 3), ElementsAre(Kind::kFail));
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr("makes a clock of rank 1, which is no worker that is "
                        "lost"));
  Open({.regimes = In(ConsistencyMode::kAsync)});
  Init();
  EXPECT_THAT(std::string(LoseWorker().status().message()),
              HasSubstr("the data of the job are not leased"));
}

TEST_F(LeaseTest, ShardsStay) {
  Begin(ConsistencyMode::kAsync, 100);
  const absl::Status status = BeginCut(1, {5, 5}, CutUse::kRouting);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

}  // namespace
}  // namespace syncline::ps
