// Goal: a controller that begins with a state at a cut decides as the one that
// exported it: about repeats, about the next clock, and about who has finished.
// Method: the same calls to both, in each mode; each refusal.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/consistency/consistency_controller.h"
#include "tests/unit/server/consistency/consistency_controller_fixture.h"

namespace syncline::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ControllerStateTest : public ControllerTest {
 protected:
  // Both workers have closed two clocks and are held at a cut.
  ControllerState StateAtCut(ConsistencyMode mode) {
    OpenAndInit(mode);
    EXPECT_TRUE(BeginCut(7, {2, 2}).ok());
    for (int64_t clock = 0; clock < 2; ++clock) {
      Push(10 + clock, 0, clock, {0, 1});
      Push(20 + clock, 1, clock, {0, 1});
    }
    Push(30, 1, 0, {0, 1});  // a repeat
    EXPECT_THAT(Push(31, 0, 2, {0, 1}), IsEmpty()) << "held by the cut";
    const auto state = controller_->Export(7);
    EXPECT_TRUE(state.ok()) << state.status();
    return *state;
  }
  absl::Status Import(ConsistencyMode mode, const ControllerState& state) {
    Open({.regimes = In(mode)});
    return controller_->Import(state, kStart);
  }
};

TEST_F(ControllerStateTest, GoesOnInEachMode) {
  for (const auto mode : {ConsistencyMode::kSync, ConsistencyMode::kAsync,
                          ConsistencyMode::kBoundedStaleness}) {
    const ControllerState state = StateAtCut(mode);
    EXPECT_EQ(state.duplicate_blocks, 2u);
    ASSERT_EQ(Import(mode, state), absl::OkStatus());
    EXPECT_EQ(controller_->min_clock(), 2);
    EXPECT_EQ(controller_->max_clock(), 2);
    EXPECT_EQ(controller_->initialised_count(), 2u);
    EXPECT_EQ(controller_->duplicate_blocks(), 2u);
    EXPECT_EQ(controller_->moved_at(), kStart);
    EXPECT_THAT(Pull(1, 0, 2), ElementsAre(Kind::kRead));
    // A repeat of what the first one has recorded, whoever asks again.
    EXPECT_THAT(Push(2, 1, 1, {0, 1}), ElementsAre(Kind::kAck));
    EXPECT_EQ(controller_->duplicate_blocks(), 4u);
    Push(3, 0, 2, {0, 1});
    Push(4, 1, 2, {0, 1});
    EXPECT_THAT(Pull(5, 0, 3), ElementsAre(Kind::kRead));
    EXPECT_EQ(controller_->min_clock(), 3);
    // Initial values do not replace those of the state.
    ShardActions actions;
    controller_->OnInit(6, 0, 10, {0, 1}, kStart, &actions);
    EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kAck));
    // What has been exported is exported again.
    ASSERT_TRUE(BeginCut(8, {3, 3}).ok());
    EXPECT_EQ(controller_->Export(8)->workers[1].closed, 3);
  }
}

TEST_F(ControllerStateTest, AFinishedWorkerStaysFinished) {
  ControllerState state = StateAtCut(ConsistencyMode::kSync);
  state.workers[1] = {.closed = 1, .finished = true, .left_out_pushes = 3};
  state.skipped_clocks = 4;
  ASSERT_EQ(Import(ConsistencyMode::kSync, state), absl::OkStatus());
  EXPECT_EQ(controller_->left_out_pushes(1), 3u);
  EXPECT_EQ(controller_->skipped_clocks(), 4u);
  Push(1, 1, 2, {0, 1});
  EXPECT_THAT(std::string(failure_.message()), HasSubstr("finished"));
  EXPECT_THAT(Push(2, 0, 2, {0, 1}),
              ElementsAre(Kind::kBufferGradient, Kind::kApply,
                          Kind::kBufferGradient, Kind::kApply, Kind::kAck));
}

// The regime of the state's clock, and those behind it.
TEST_F(ControllerStateTest, GoesOnInTheRegimeOfItsClock) {
  const ControllerState state = StateAtCut(ConsistencyMode::kSync);
  RegimeSchedule regimes = In(ConsistencyMode::kSync);
  ASSERT_TRUE(
      regimes.Add({.first_clock = 2, .mode = ConsistencyMode::kAsync}, 0).ok());
  ASSERT_TRUE(regimes.Add({.first_clock = 3}, 0).ok());
  Open({.regimes = regimes});
  ASSERT_EQ(controller_->Import(state, kStart), absl::OkStatus());
  EXPECT_THAT(Push(1, 0, 2, {0, 1}),
              ElementsAre(Kind::kBufferGradient, Kind::kApply,
                          Kind::kBufferGradient, Kind::kApply, Kind::kAck));
  EXPECT_THAT(Push(2, 0, 3, {0, 1}), IsEmpty()) << "SYNC waits for the other";
  ControllerState apart = state;
  apart.workers[0].closed = 4;
  Open({.regimes = regimes});
  EXPECT_THAT(std::string(controller_->Import(apart, kStart).message()),
              HasSubstr("in SYNC a cut is at one clock"));
}

TEST_F(ControllerStateTest, OnlyAHeldCutHasAState) {
  OpenAndInit(ConsistencyMode::kAsync);
  EXPECT_THAT(std::string(controller_->Export(7).status().message()),
              HasSubstr("cut 7 is not announced"));
  ASSERT_TRUE(BeginCut(7, {1, 1}).ok());
  EXPECT_THAT(std::string(controller_->Export(7).status().message()),
              HasSubstr("cut 7 is not passed yet"));
  Push(1, 0, 0, {0, 1});
  Push(2, 1, 0, {0, 1});
  EXPECT_TRUE(controller_->Export(7).ok());
  Tick(absl::Seconds(4));
  EXPECT_EQ(controller_->Export(7).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ShardActions actions;
  controller_->Close(absl::CancelledError("over"), &actions);
  EXPECT_EQ(controller_->Export(7).status(), absl::CancelledError("over"));
  EXPECT_EQ(controller_->Import({}, kStart), absl::CancelledError("over"));
}

TEST_F(ControllerStateTest, AStateThatCannotBeChangesNothing) {
  const ControllerState good = StateAtCut(ConsistencyMode::kSync);
  EXPECT_EQ(controller_->Import(good, kStart).code(),
            absl::StatusCode::kFailedPrecondition)
      << "it has seen calls";
  ControllerState state = good;
  state.workers.pop_back();
  EXPECT_THAT(std::string(Import(ConsistencyMode::kSync, state).message()),
              HasSubstr("the state is of 1 workers, the job has 2"));
  state = good;
  state.workers[1].closed = -1;
  EXPECT_THAT(std::string(Import(ConsistencyMode::kSync, state).message()),
              HasSubstr("worker:0 at b:2 has closed -1 clocks"));
  state.workers[1].closed = 3;
  EXPECT_THAT(std::string(Import(ConsistencyMode::kSync, state).message()),
              HasSubstr("in SYNC a cut is at one clock"));
  EXPECT_EQ(controller_->initialised_count(), 0u);
  EXPECT_EQ(controller_->CheckFresh(), absl::OkStatus());
  EXPECT_EQ(Import(ConsistencyMode::kAsync, state), absl::OkStatus());
}

}  // namespace
}  // namespace syncline::ps
