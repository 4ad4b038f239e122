// Goal: a controller that begins with a state at a cut decides as the one that
// exported it: about repeats, about the next clock, and about who has finished.
// Method: the same calls to both, in each mode; each refusal.

#include <string>
#include <vector>

#include "common/base/busy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/consistency/consistency_controller.h"
#include "tests/unit/server/consistency/consistency_controller_fixture.h"

namespace syncline::ps {
namespace {

using ::testing::Contains;
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
    return controller_->Import(state, /*begins_attempt=*/false, kStart);
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
    // A state that was imported is exported again, with the later clocks.
    ASSERT_TRUE(BeginCut(8, {3, 3}).ok());
    EXPECT_EQ(controller_->Export(8)->workers[1].closed, 3);
  }
}

// A longer job that starts from the end of a shorter one.
TEST_F(ControllerStateTest, AWorkerGoesOnWhereThereAreMoreClocks) {
  for (const int64_t total : {2, 3}) {
    ControllerState state = StateAtCut(ConsistencyMode::kSync);
    for (auto& worker : state.workers) worker.finished = true;
    Open({.regimes = In(ConsistencyMode::kSync)});
    ASSERT_EQ(controller_->Import(state, /*begins_attempt=*/true, kStart),
              absl::OkStatus());
    controller_->GoOnTo(total);
    ShardActions actions;
    controller_->OnInit(1, 0, 10, {0, 1}, kStart, &actions);
    if (total == 2) {
      EXPECT_THAT(Push(2, 0, 2, {0, 1}), Contains(Kind::kFail));
      continue;
    }
    EXPECT_THAT(Push(2, 0, 2, {0, 1}), Contains(Kind::kAck));
    EXPECT_THAT(Pull(3, 0, 3), IsEmpty()) << "the other one is waited for";
    const auto both = Push(4, 1, 2, {0, 1});
    EXPECT_THAT(both, Contains(Kind::kApply));
    EXPECT_THAT(both, Contains(Kind::kRead));
    EXPECT_THAT(Push(5, 0, 3, {0, 1}), Contains(Kind::kAck));
  }
}

TEST_F(ControllerStateTest, AFinishedWorkerStaysFinished) {
  ControllerState state = StateAtCut(ConsistencyMode::kSync);
  state.workers[1] = {.closed = 1, .finished = true, .left_out_pushes = 3};
  state.skipped_clocks = 4;
  state.skipped_through = 2;
  ASSERT_EQ(Import(ConsistencyMode::kSync, state), absl::OkStatus());
  EXPECT_EQ(controller_->left_out_pushes(1), 3u);
  EXPECT_EQ(controller_->skipped_clocks(), 4u);
  Pull(9, 0, 2);
  EXPECT_EQ(last_[0].skipped_through, 2);
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
  ASSERT_EQ(controller_->Import(state, /*begins_attempt=*/false, kStart),
            absl::OkStatus());
  EXPECT_THAT(Push(1, 0, 2, {0, 1}),
              ElementsAre(Kind::kBufferGradient, Kind::kApply,
                          Kind::kBufferGradient, Kind::kApply, Kind::kAck));
  EXPECT_THAT(Push(2, 0, 3, {0, 1}), IsEmpty()) << "SYNC waits for the other";
  ControllerState apart = state;
  apart.workers[0].closed = 4;
  Open({.regimes = regimes});
  EXPECT_THAT(std::string(controller_->Import(apart, false, kStart).message()),
              HasSubstr("in SYNC a cut is at one clock"));
}

// A worker stops at a cut that was announced before.
TEST_F(ControllerStateTest, CutsThatAreAnnouncedGoAlong) {
  OpenAndInit(ConsistencyMode::kAsync);
  ASSERT_TRUE(BeginCut(7, {1, 1}).ok());
  ASSERT_TRUE(BeginCut(8, {2, 2}).ok());
  for (uint32_t rank = 0; rank < 2; ++rank) Push(10 + rank, rank, 0, {0, 1});
  const auto state = controller_->Export(7);
  ASSERT_TRUE(state.ok()) << state.status();
  ASSERT_EQ(Import(ConsistencyMode::kAsync, *state), absl::OkStatus());
  for (uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(Push(20 + rank, rank, 1, {0, 1}), Contains(Kind::kAck));
    EXPECT_THAT(Push(30 + rank, rank, 2, {0, 1}), IsEmpty()) << "held";
  }
  EXPECT_TRUE(controller_->Export(8).ok());
  EXPECT_TRUE(EndCut(7).ok()) << "a repeat";
  ASSERT_TRUE(EndCut(8).ok());
  EXPECT_EQ(controller_->min_clock(), 3);
}

TEST_F(ControllerStateTest, WhileTheStateMovesCutsStandStill) {
  OpenAndInit(ConsistencyMode::kAsync);
  ASSERT_TRUE(BeginCut(6, {1, 1}).ok());
  ASSERT_TRUE(BeginCut(7, {1, 1}, CutUse::kRouting).ok());
  EXPECT_TRUE(BeginCut(9, {4, 4}).ok()) << "nothing is held yet";
  for (uint32_t rank = 0; rank < 2; ++rank) Push(10 + rank, rank, 0, {0, 1});
  EXPECT_TRUE(EndCut(6).ok());
  EXPECT_EQ(BeginCut(8, {2, 2}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(controller_->smallest_cut(), ElementsAre(2, 2))
      << "it may be asked for again";
  EXPECT_TRUE(IsBusy(EndCut(9)));
  EXPECT_THAT(std::string(EndCut(9).message()),
              HasSubstr("the routing cut at clock 1 is held"));
  EXPECT_TRUE(BeginCut(7, {1, 1}, CutUse::kRouting).ok()) << "a repeat";
  EXPECT_TRUE(EndCut(7).ok());
  EXPECT_TRUE(EndCut(9).ok());
  EXPECT_TRUE(BeginCut(8, {2, 2}).ok());
}

// A table that is scanned at a cut is not to move before the scan has ended.
TEST_F(ControllerStateTest, TheStateDoesNotMoveWhileACutBeforeThatIsHeld) {
  OpenAndInit(ConsistencyMode::kAsync);
  ASSERT_TRUE(BeginCut(6, {1, 1}).ok());
  ASSERT_TRUE(BeginCut(7, {1, 1}, CutUse::kRouting).ok());
  for (uint32_t rank = 0; rank < 2; ++rank) Push(10 + rank, rank, 0, {0, 1});
  EXPECT_EQ(controller_->CheckHeldCut(6), absl::OkStatus());
  EXPECT_THAT(std::string(controller_->CheckHeldCut(7).message()),
              HasSubstr("cut 7 is not passed yet"));
  EXPECT_THAT(Push(20, 0, 1, {0, 1}), IsEmpty());
  ShardActions actions;
  ASSERT_TRUE(controller_->OnEndCut(0, 10, 6, kStart, &actions).ok());
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kSnapshot));
  EXPECT_EQ(controller_->CheckHeldCut(7), absl::OkStatus());
  ASSERT_TRUE(EndCut(7).ok());
  // One that nobody ends is given up.
  ASSERT_TRUE(BeginCut(8, {2, 2}).ok());
  ASSERT_TRUE(BeginCut(9, {2, 2}, CutUse::kRouting).ok());
  Push(21, 1, 1, {0, 1});
  EXPECT_FALSE(controller_->CheckHeldCut(9).ok());
  EXPECT_THAT(Tick(absl::Seconds(3)), ElementsAre(Kind::kSnapshot));
  EXPECT_EQ(controller_->CheckHeldCut(9), absl::OkStatus());
}

// The chief announces the first cut, and then begins the attempt: no worker
// trains past the cut before it is announced.
TEST_F(ControllerStateTest, AnAttemptBeginsWithTheChiefsInit) {
  OpenAndInit(ConsistencyMode::kAsync);
  ASSERT_TRUE(BeginCut(7, {1, 1}).ok());
  ASSERT_TRUE(BeginCut(8, {2, 2}).ok());
  for (uint32_t rank = 0; rank < 2; ++rank) Push(10 + rank, rank, 0, {0, 1});
  const auto state = controller_->Export(7);
  ASSERT_TRUE(state.ok()) << state.status();
  Open({.regimes = In(ConsistencyMode::kAsync)});
  ASSERT_EQ(controller_->Import(*state, /*begins_attempt=*/true, kStart),
            absl::OkStatus());
  EXPECT_THAT(Pull(1, 1, 1), IsEmpty());
  Push(2, 1, 1, {0, 1});
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr("push before initialisation; missing: chief:0 at a:1, "
                        "which has not begun the job"));
  ASSERT_TRUE(BeginCut(8, {2, 2}).ok()) << "the former attempt's is unknown";
  ASSERT_TRUE(EndCut(8).ok());
  ShardActions actions;
  controller_->OnInit(3, 0, 10, {0, 1}, kStart, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kAck, Kind::kRead));
  EXPECT_THAT(Push(4, 1, 1, {0, 1}), Contains(Kind::kAck));
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
  EXPECT_EQ(controller_->Import({}, false, kStart),
            absl::CancelledError("over"));
}

TEST_F(ControllerStateTest, AStateThatCannotBeChangesNothing) {
  const ControllerState good = StateAtCut(ConsistencyMode::kSync);
  EXPECT_EQ(controller_->Import(good, false, kStart).code(),
            absl::StatusCode::kFailedPrecondition)
      << "it has seen calls";
  ControllerState state = good;
  state.workers.pop_back();
  EXPECT_THAT(std::string(Import(ConsistencyMode::kSync, state).message()),
              HasSubstr("the state is of 1 workers, the job has 2"));
  state = good;
  state.cuts = {{.id = 9, .clocks = {3}, .hold = absl::Seconds(1)}};
  EXPECT_THAT(std::string(Import(ConsistencyMode::kSync, state).message()),
              HasSubstr("the state has cut 9 at clocks 3 of 2 workers"));
  for (const std::vector<int64_t>& clocks :
       {std::vector<int64_t>{3, -1}, {3, 1}, {int64_t{1} << 60, 3}}) {
    state.cuts[0].clocks = clocks;
    EXPECT_FALSE(Import(ConsistencyMode::kSync, state).ok()) << clocks[0];
  }
  state.cuts[0].clocks = {2, 2};
  EXPECT_TRUE(Import(ConsistencyMode::kSync, state).ok());
  state = good;
  state.workers[1].closed = -1;
  EXPECT_THAT(std::string(Import(ConsistencyMode::kSync, state).message()),
              HasSubstr("worker:0 at b:2 has closed -1 clocks"));
  state.workers[1].closed = 2;
  state.workers[1].clocks_behind = 3;
  EXPECT_THAT(std::string(Import(ConsistencyMode::kSync, state).message()),
              HasSubstr("closed 2 clocks, the last 3 of which were applied "
                        "without it"));
  state.workers[1].clocks_behind = 0;
  state.workers[1].closed = 3;
  EXPECT_THAT(std::string(Import(ConsistencyMode::kSync, state).message()),
              HasSubstr("in SYNC a cut is at one clock"));
  EXPECT_EQ(controller_->initialised_count(), 0u);
  EXPECT_EQ(controller_->CheckFresh(), absl::OkStatus());
  EXPECT_EQ(Import(ConsistencyMode::kAsync, state), absl::OkStatus());
}

}  // namespace
}  // namespace syncline::ps
