// Goal: where the regime changes, each clock obeys its own, and where SYNC
// begins or ends nothing of one side meets the other.
// Method: two workers around a border, one event at a time; see
// tests/simulation for all the orders that nobody thought of.

#include <string>

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

// A worker that is held at 1 would keep the other from coming to 5.
TEST_F(RegimeTest, AnAnnouncedCutCanBeReachedUnderTheRegimeThatComes) {
  OpenAndInit(ConsistencyMode::kAsync);
  ASSERT_OK(BeginCut(1, {1, 5}));
  const absl::Status early = Change({.first_clock = 4});
  EXPECT_EQ(early.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(early.message()),
              HasSubstr("a regime from clock 4 would keep workers from the "
                        "evaluation cut at clocks 1,5; the smallest possible "
                        "one is 5"));
  EXPECT_OK(Change({.first_clock = 5}));
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

// What was ready under the old bound is looked at again.
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

}  // namespace
}  // namespace syncline::ps
