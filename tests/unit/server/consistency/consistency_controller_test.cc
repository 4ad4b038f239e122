// Goal: what the histories in tests/simulation cannot show one by one: the
// messages, the refusals, and the order of actions in small drawn cases.
// Method: examples with two workers and two blocks. The parts beside:
// consistency_controller_norm_test.cc (norms, trust ratios and skipped clocks),
// consistency_controller_cut_test.cc (cuts, evaluators and activities).

#include "server/consistency/consistency_controller.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/incarnation.h"
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

TEST_F(ControllerTest, RepeatsAndRefusedPushesBringNoGradients) {
  const auto brings = [&](uint64_t incarnation, int64_t clock,
                          std::vector<BlockIndex> blocks) {
    PushFacts push;
    push.clock = clock;
    push.sample_count = 8;
    push.blocks_in_clock = 2;
    push.blocks = std::move(blocks);
    return controller_->BringsGradients(
        {.rank = 1, .incarnation = incarnation, .push = std::move(push)});
  };
  Open({.regimes = In(ConsistencyMode::kAsync)});
  EXPECT_FALSE(brings(11, 0, {0, 1})) << "before initial values";
  Init();
  EXPECT_TRUE(brings(11, 0, {0, 1}));
  EXPECT_FALSE(brings(12, 0, {0, 1})) << "a replaced process";
  Push(2, 1, 0, {0});
  EXPECT_FALSE(brings(11, 0, {0}));
  EXPECT_TRUE(brings(11, 0, {0, 1}));
  EXPECT_TRUE(brings(11, 1, {0})) << "of a clock that is not open yet";
  Push(3, 1, 0, {1});
  EXPECT_FALSE(brings(11, 0, {0, 1})) << "of a closed clock";
  EXPECT_TRUE(brings(11, 1, {0}));
  ShardActions actions;
  controller_->Close(absl::CancelledError("over"), &actions);
  EXPECT_FALSE(brings(11, 1, {0})) << "of a closed job";
}

TEST_F(ControllerTest, SyncAppliesABlockWhenTheLastWorkerDelivers) {
  OpenAndInit(ConsistencyMode::kSync);
  EXPECT_THAT(
      Push(2, 1, 0, {0, 1}),
      ElementsAre(Kind::kBufferGradient, Kind::kBufferGradient, Kind::kAck));
  EXPECT_THAT(Pull(3, 1, 1), IsEmpty());
  EXPECT_THAT(Push(4, 0, 0, {0}),
              ElementsAre(Kind::kBufferGradient, Kind::kApply, Kind::kAck));
  EXPECT_EQ(last_[1].sample_count, 16u);
  // Its value is final, whatever is still missing of block 1.
  EXPECT_THAT(Pull(5, 1, 1, {0}), ElementsAre(Kind::kRead));
  EXPECT_THAT(Push(6, 0, 0, {1}),
              ElementsAre(Kind::kBufferGradient, Kind::kApply, Kind::kAck,
                          Kind::kRead));
  EXPECT_EQ(last_[3].token, 3u);
  EXPECT_EQ(last_[3].min_clock, 1);
}

TEST_F(ControllerTest, AnEmptyCloseCompletesTheClockOfTheOthers) {
  OpenAndInit(ConsistencyMode::kSync);
  Push(2, 0, 0, {0, 1});
  EXPECT_THAT(Push(3, 1, 0, {}, 0),
              ElementsAre(Kind::kApply, Kind::kApply, Kind::kAck));
  EXPECT_EQ(last_[0].sample_count, 8u);
}

TEST_F(ControllerTest, AClockThatIsEmptyForAllAppliesNothingAndCounts) {
  OpenAndInit(ConsistencyMode::kSync);
  Push(2, 0, 0, {}, 0);
  EXPECT_THAT(Push(3, 1, 0, {}, 0), ElementsAre(Kind::kAck));
  EXPECT_THAT(Pull(4, 0, 1), ElementsAre(Kind::kRead));
}

TEST_F(ControllerTest, SyncHoldsNoMoreThanOneClocksGradients) {
  OpenAndInit(ConsistencyMode::kSync);
  Push(2, 1, 0, {0, 1});
  EXPECT_THAT(Push(3, 1, 1, {0, 1}), IsEmpty());
  EXPECT_EQ(controller_->parked_pushes(), 1u);
  EXPECT_THAT(
      Push(4, 0, 0, {0, 1}),
      ElementsAre(Kind::kBufferGradient, Kind::kApply, Kind::kBufferGradient,
                  Kind::kApply, Kind::kAck, Kind::kBufferGradient,
                  Kind::kBufferGradient, Kind::kAck));
}

TEST_F(ControllerTest, SspWaitsForTheBoundAndNoLonger) {
  OpenAndInit(ConsistencyMode::kBoundedStaleness);
  Push(2, 0, 0, {0, 1});
  EXPECT_THAT(Pull(3, 0, 1), ElementsAre(Kind::kRead));
  Push(4, 0, 1, {0, 1});
  EXPECT_THAT(Pull(5, 0, 2), IsEmpty());
  EXPECT_THAT(
      Push(6, 1, 0, {0, 1}),
      ElementsAre(Kind::kBufferGradient, Kind::kApply, Kind::kBufferGradient,
                  Kind::kApply, Kind::kAck, Kind::kRead));
  EXPECT_EQ(last_[5].min_clock, 1);
  EXPECT_EQ(last_[5].max_clock, 2);
}

TEST_F(ControllerTest, AFinishedWorkerHoldsNobodyUp) {
  OpenAndInit(ConsistencyMode::kSync);
  PushFacts last;
  last.sample_count = 8;
  last.blocks_in_clock = 2;
  last.blocks = {0, 1};
  last.finished = true;
  Push(2, 1, last);
  Push(3, 0, 0, {0, 1});
  EXPECT_THAT(Push(4, 0, 1, {0, 1}),
              ElementsAre(Kind::kBufferGradient, Kind::kApply,
                          Kind::kBufferGradient, Kind::kApply, Kind::kAck));
  EXPECT_THAT(Push(5, 1, 1, {0, 1}), ElementsAre(Kind::kFail));
  EXPECT_EQ(failure_.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr("worker:0 at b:2, which finished with clock 0"));
  EXPECT_THAT(Push(6, 1, last), ElementsAre(Kind::kAck));  // a late repeat
}

TEST_F(ControllerTest, AnOverduePullNamesWhoIsMissing) {
  OpenAndInit(ConsistencyMode::kSync);
  Push(2, 0, 0, {0, 1});
  Push(3, 1, 0, {1});
  EXPECT_THAT(Pull(4, 0, 1), IsEmpty());
  EXPECT_THAT(Tick(absl::Seconds(4)), IsEmpty());
  EXPECT_THAT(Tick(absl::Seconds(5)), ElementsAre(Kind::kFail));
  EXPECT_EQ(failure_.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(failure_.message(),
            "job j on ps:0 at p:9: pull of clock 1 by chief:0 at a:1 ran out "
            "of time waiting for the pushes before it; missing: worker:0 at "
            "b:2 (clock 0, 1 of 2 blocks)");
}

TEST_F(ControllerTest, AnOverduePushSaysWhatItWaitedFor) {
  OpenAndInit(ConsistencyMode::kSync);
  Push(2, 1, 2, {0, 1});
  Tick(absl::Seconds(5));
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr("waiting for its own earlier pushes: worker:0 at b:2 "
                        "(clock 0, nothing of it yet)"));
  Push(3, 0, 0, {0, 1});
  Push(4, 0, 1, {0, 1});
  Tick(absl::Seconds(5));
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr("waiting for clock 0; missing: worker:0 at b:2"));
}

TEST_F(ControllerTest, BeforeInitialisationPullsWaitAndPushesAreRefused) {
  Open({});
  ShardActions actions;
  controller_->OnInit(1, 0, 10, {1}, kStart, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kInit, Kind::kAck));
  EXPECT_THAT(Push(2, 1, 0, {0}), ElementsAre(Kind::kFail));
  EXPECT_EQ(failure_.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Pull(3, 1, 0), IsEmpty());
  Tick(absl::Seconds(5));
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr("initial values from chief:0 at a:1: 1 of 2 blocks"));
  EXPECT_THAT(Pull(4, 1, 0), IsEmpty());
  actions.clear();
  controller_->OnInit(5, 0, 10, {0, 1}, kStart, &actions);  // 1 is a repeat
  EXPECT_THAT(Kinds(actions),
              ElementsAre(Kind::kInit, Kind::kAck, Kind::kRead));
}

// The Init says how many clocks there are.
TEST_F(ControllerTest, AShardOfRowsAloneWaitsForItsInitToo) {
  Open({.regimes = In(ConsistencyMode::kAsync),
        .block_count = 3,
        .slot_count = 3});
  EXPECT_THAT(Pull(2, 1, 0), IsEmpty());
  EXPECT_THAT(Push(3, 1, 0, {1}, 1), ElementsAre(Kind::kFail));
  EXPECT_EQ(failure_.code(), absl::StatusCode::kFailedPrecondition);
  ShardActions actions;
  controller_->OnInit(4, 0, 10, {}, kStart, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kAck, Kind::kRead));
  EXPECT_THAT(Push(5, 1, 0, {1}, 1), Not(Contains(Kind::kFail)));
}

TEST_F(ControllerTest, StrangersAndTheDeadAreRefused) {
  OpenAndInit(ConsistencyMode::kSync);
  ShardCall call{.token = 2, .rank = 2, .incarnation = 12};
  call.pull = PullFacts{};
  EXPECT_THAT(Call(call), ElementsAre(Kind::kFail));
  EXPECT_EQ(failure_.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(failure_.message()), HasSubstr("ranks 0 to 1"));
  call.rank = 1;
  EXPECT_THAT(Call(call), ElementsAre(Kind::kFail));
  EXPECT_EQ(failure_.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr(absl::StrCat("incarnation ", IncarnationText(12),
                                     " of worker:0 at b:2 was replaced by ",
                                     IncarnationText(11))));
  ShardActions actions;
  controller_->OnInit(3, 1, 11, {0}, kStart, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kFail));
  EXPECT_THAT(std::string(failure_.message()), HasSubstr("only rank 0"));
}

TEST_F(ControllerTest, ContradictionsAreRefusedAndChangeNothing) {
  OpenAndInit(ConsistencyMode::kSync);
  Push(2, 0, 0, {0});
  EXPECT_THAT(Push(3, 0, 0, {1}, 1), ElementsAre(Kind::kFail));
  EXPECT_EQ(failure_.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr("announced with other values: sample_count 8, "
                        "blocks_in_clock 2"));
  EXPECT_EQ(controller_->worker(0).closed(), 0);
  EXPECT_THAT(Push(4, 0, 0, {1}),
              ElementsAre(Kind::kBufferGradient, Kind::kAck));
  EXPECT_EQ(controller_->worker(0).closed(), 1);
}

TEST_F(ControllerTest, ParkedCallsAreBounded) {
  Open({.regimes = In(ConsistencyMode::kSync), .parked_max = 2});
  EXPECT_THAT(Pull(2, 0, 0), IsEmpty());
  EXPECT_THAT(Pull(3, 1, 0), IsEmpty());
  EXPECT_THAT(Pull(4, 1, 0), ElementsAre(Kind::kFail));
  EXPECT_EQ(failure_.code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(ControllerTest, CancelledAndClosedCallsEndOnce) {
  OpenAndInit(ConsistencyMode::kSync);
  Pull(2, 0, 1);
  Push(3, 0, 5, {0});
  ShardActions actions;
  controller_->OnCancel(2, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kFail));
  actions.clear();
  controller_->OnCancel(2, &actions);
  EXPECT_THAT(actions, IsEmpty());
  controller_->Close(absl::CancelledError("over"), &actions);
  ASSERT_THAT(Kinds(actions), ElementsAre(Kind::kFail));
  EXPECT_EQ(actions[0].token, 3u);
  EXPECT_THAT(Pull(4, 0, 0), ElementsAre(Kind::kFail));
  EXPECT_EQ(failure_.message(), "over");
}

}  // namespace
}  // namespace syncline::ps
