// Part of consistency_controller_test: whom the others wait for.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/server/consistency/consistency_controller_fixture.h"

namespace syncline::ps {
namespace {

class BlameTest : public ControllerTest {
 protected:
  // A whole push of the clock, and a pull of the next one's values.
  void StepAt(int seconds, uint32_t rank, int64_t clock) {
    PushFacts push;
    push.clock = clock;
    push.sample_count = 8;
    push.blocks_in_clock = 2;
    push.blocks = {0, 1};
    ShardActions actions;
    controller_->OnCall({.token = ++token_,
                         .rank = rank,
                         .incarnation = 10 + rank,
                         .deadline = At(1000),
                         .push = std::move(push),
                         .pull = PullFacts{clock + 1, {0, 1}, 0}},
                        At(seconds), &actions);
  }
  static absl::Time At(int seconds) { return kStart + absl::Seconds(seconds); }
  double SecondsOf(uint32_t rank, int at) {
    return absl::ToDoubleSeconds(controller_->blame(rank, At(at)).time);
  }
  uint64_t ClocksOf(uint32_t rank) {
    return controller_->blame(rank, At(0)).clocks;
  }

  CallToken token_ = 100;
};

TEST_F(BlameTest, InSyncTheLastWorkerIsToBlameFromWhenItIsAlone) {
  OpenAndInit(ConsistencyMode::kSync);
  EXPECT_EQ(SecondsOf(1, 1), 0) << "both are still to come";
  StepAt(2, 0, 0);
  EXPECT_EQ(SecondsOf(1, 5), 3) << "the wait that goes on counts";
  StepAt(6, 1, 0);
  EXPECT_EQ(SecondsOf(1, 9), 4);
  EXPECT_EQ(SecondsOf(0, 9), 0);
  EXPECT_EQ(ClocksOf(1), 1u);
  StepAt(10, 1, 1);
  StepAt(11, 0, 1);
  EXPECT_EQ(SecondsOf(0, 20), 1);
  EXPECT_EQ(SecondsOf(1, 20), 4);
  EXPECT_EQ(ClocksOf(0), 1u);
}

// Gradients of the next clock wait here already: a clock begins and has all but
// one in the same event.
TEST_F(BlameTest, InSyncEachClockOfAStragglerCounts) {
  OpenAndInit(ConsistencyMode::kSync);
  StepAt(1, 0, 0);
  StepAt(2, 0, 1);  // parked
  StepAt(5, 1, 0);
  EXPECT_EQ(ClocksOf(1), 1u);
  EXPECT_EQ(SecondsOf(1, 5), 4);
  StepAt(8, 1, 1);
  EXPECT_EQ(ClocksOf(1), 2u);
  EXPECT_EQ(SecondsOf(1, 9), 7);
}

TEST_F(BlameTest, WithABoundOnlyWaitsAtItCount) {
  OpenAndInit(ConsistencyMode::kBoundedStaleness);
  EXPECT_EQ(controller_->staleness_bound(), 1);
  StepAt(1, 0, 0);
  EXPECT_EQ(SecondsOf(1, 5), 0) << "it may be one clock behind";
  StepAt(5, 0, 1);
  EXPECT_EQ(SecondsOf(1, 7), 2);
  StepAt(9, 1, 0);
  EXPECT_EQ(SecondsOf(1, 20), 4);
  EXPECT_EQ(ClocksOf(1), 1u);
  EXPECT_EQ(SecondsOf(0, 20), 0);
}

TEST_F(BlameTest, InAsyncNobodyWaits) {
  OpenAndInit(ConsistencyMode::kAsync);
  EXPECT_EQ(controller_->staleness_bound(), std::nullopt);
  for (int clock = 0; clock < 5; ++clock) StepAt(clock, 0, clock);
  EXPECT_EQ(SecondsOf(1, 50), 0);
  EXPECT_EQ(ClocksOf(1), 0u);
}

TEST_F(BlameTest, WhoHasFinishedHoldsNobodyUpAndNobodyIsLeftToWait) {
  OpenAndInit(ConsistencyMode::kSync);
  PushFacts last;
  last.sample_count = 8;
  last.blocks_in_clock = 2;
  last.blocks = {0, 1};
  last.finished = true;
  Push(2, 1, last);
  StepAt(3, 0, 0);
  EXPECT_EQ(SecondsOf(1, 50), 0);
  const double before = SecondsOf(0, 3);
  EXPECT_EQ(SecondsOf(0, 50), before) << "it is alone now";
}

}  // namespace
}  // namespace syncline::ps
