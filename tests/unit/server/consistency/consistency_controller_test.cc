// Goal: what the histories in tests/simulation cannot show one by one: the
// messages, the refusals, and the order of actions in small drawn cases.
// Method: examples with two workers and two blocks.

#include "server/consistency/consistency_controller.h"

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/incarnation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Kind = ShardAction::Kind;

const absl::Time kStart = absl::UnixEpoch();

class ControllerTest : public ::testing::Test {
 protected:
  void Open(ConsistencyController::Options options) {
    options.workers = {{10, "chief:0 at a:1"}, {11, "worker:0 at b:2"}};
    if (options.block_count == 0) options.block_count = 2;
    options.label = "job j on ps:0 at p:9";
    controller_ = std::make_unique<ConsistencyController>(std::move(options));
  }
  void OpenAndInit(ConsistencyMode mode) {
    Open({.mode = mode, .staleness_bound = 1});
    Init();
  }
  void Init() {
    ShardActions actions;
    controller_->OnInit(1, 0, 10, {0, 1}, kStart, &actions);
  }

  // Each returns the kinds of the actions it caused; the last failure's status
  // is in `failure_`.
  std::vector<Kind> Push(CallToken token, uint32_t rank, int64_t clock,
                         std::vector<BlockIndex> blocks,
                         uint32_t blocks_in_clock = 2) {
    PushFacts push;
    push.clock = clock;
    push.sample_count = blocks_in_clock > 0 ? 8 : 0;
    push.blocks_in_clock = blocks_in_clock;
    push.blocks = std::move(blocks);
    return Push(token, rank, std::move(push));
  }
  std::vector<Kind> Push(CallToken token, uint32_t rank, PushFacts push) {
    return Call({.token = token,
                 .rank = rank,
                 .incarnation = 10 + rank,
                 .deadline = kStart + absl::Seconds(5),
                 .push = std::move(push),
                 .pull = std::nullopt});
  }
  std::vector<Kind> Pull(CallToken token, uint32_t rank, int64_t clock,
                         std::vector<BlockIndex> blocks = {0, 1},
                         uint64_t cut_id = 0) {
    return Call({.token = token,
                 .rank = rank,
                 .incarnation = 10 + rank,
                 .deadline = kStart + absl::Seconds(5),
                 .push = std::nullopt,
                 .pull = PullFacts{clock, std::move(blocks), cut_id}});
  }
  std::vector<Kind> Call(ShardCall call) {
    ShardActions actions;
    controller_->OnCall(std::move(call), kStart, &actions);
    return Kinds(actions);
  }
  std::vector<Kind> Tick(absl::Duration after) {
    ShardActions actions;
    controller_->OnTick(kStart + after, &actions);
    return Kinds(actions);
  }
  absl::Status BeginCut(uint64_t id, std::vector<int64_t> clocks) {
    ShardActions actions;
    return controller_->OnBeginCut(0, 10, id, std::move(clocks),
                                   absl::Seconds(3), kStart, &actions);
  }
  std::vector<Kind> Kinds(const ShardActions& actions) {
    std::vector<Kind> kinds;
    last_ = actions;
    for (const ShardAction& action : actions) {
      kinds.push_back(action.kind);
      if (action.kind == Kind::kFail) failure_ = action.status;
    }
    return kinds;
  }

  std::unique_ptr<ConsistencyController> controller_;
  ShardActions last_;
  absl::Status failure_;
};

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
  Open({.mode = ConsistencyMode::kAsync});
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

TEST_F(ControllerTest, AClippedNormHoldsBackEveryBlock) {
  Open({.clip_norm = true});
  Init();
  Push(2, 0, 0, {0, 1});
  EXPECT_THAT(Push(3, 1, 0, {0, 1}),
              ElementsAre(Kind::kBufferGradient, Kind::kReduceGradients,
                          Kind::kBufferGradient, Kind::kReduceGradients,
                          Kind::kSendNorms, Kind::kAck));
  EXPECT_THAT(Pull(4, 0, 1, {0}), IsEmpty());
  controller_->OnReductionDelayed({0}, absl::UnavailableError("ps:1 is away"));
  Tick(absl::Seconds(6));
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr("the global norm of clock 0 (ps:1 is away)"));
  EXPECT_THAT(Pull(5, 0, 1, {0}), IsEmpty());
  ShardActions actions;
  controller_->OnReduced({0}, 25.0, kStart, &actions);
  EXPECT_THAT(Kinds(actions),
              ElementsAre(Kind::kApply, Kind::kApply, Kind::kRead));
  EXPECT_EQ(actions[0].squared_norm, 25.0);
  actions.clear();
  controller_->OnReduced({0}, 25.0, kStart, &actions);
  EXPECT_THAT(actions, IsEmpty());
}

TEST_F(ControllerTest, ATrustRatioCutsTheStepInTwo) {
  Open({.trust_ratio = true});
  Init();
  Push(2, 0, 0, {0, 1});
  EXPECT_THAT(Push(3, 1, 0, {0, 1}),
              ElementsAre(Kind::kBufferGradient, Kind::kComputeLambUpdate,
                          Kind::kBufferGradient, Kind::kComputeLambUpdate,
                          Kind::kSendNorms, Kind::kAck));
  EXPECT_EQ(last_[4].stage, ReductionStage::kTrust);
  EXPECT_THAT(Pull(4, 0, 1, {0}), IsEmpty());
  ShardActions actions;
  controller_->OnReduced({0, ReductionStage::kGradient}, 1, kStart, &actions);
  EXPECT_THAT(actions, IsEmpty()) << "not what is waited for";
  controller_->OnReduced({0, ReductionStage::kTrust}, -1, kStart, &actions);
  EXPECT_THAT(Kinds(actions),
              ElementsAre(Kind::kApply, Kind::kApply, Kind::kRead));
}

TEST_F(ControllerTest, AClippedNormComesBeforeTheTrustRatio) {
  Open({.clip_norm = true, .trust_ratio = true});
  Init();
  Push(2, 0, 0, {0});
  Push(2, 0, 0, {1});
  EXPECT_THAT(
      Push(3, 1, 0, {1}, 1),
      ElementsAre(Kind::kBufferGradient, Kind::kReduceGradients,
                  Kind::kReduceGradients, Kind::kSendNorms, Kind::kAck));
  EXPECT_EQ(last_[3].stage, ReductionStage::kGradient);
  ShardActions actions;
  controller_->OnReduced({0, ReductionStage::kGradient}, 25, kStart, &actions);
  EXPECT_THAT(Kinds(actions),
              ElementsAre(Kind::kComputeLambUpdate, Kind::kComputeLambUpdate,
                          Kind::kSendNorms));
  EXPECT_EQ(actions[0].squared_norm, 25);
  EXPECT_EQ(actions[2].stage, ReductionStage::kTrust);
  actions.clear();
  controller_->OnReduced({0, ReductionStage::kGradient}, 25, kStart, &actions);
  EXPECT_THAT(actions, IsEmpty()) << "a repeat";
  Tick(absl::Seconds(1));
  EXPECT_THAT(Pull(4, 0, 1, {0}), IsEmpty());
  Tick(absl::Seconds(6));
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr("the norms of all tensors of clock 0"));
  controller_->OnReduced({0, ReductionStage::kTrust}, -1, kStart, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kApply, Kind::kApply));
}

// Rows are stepped without their table's norm: they wait for no reduction.
TEST_F(ControllerTest, SlotsHaveNoTrustRatio) {
  Open({.trust_ratio = true, .slot_count = 1});
  ShardActions actions;
  controller_->OnInit(1, 0, 10, {0}, kStart, &actions);
  Push(2, 0, 0, {0, 1});
  EXPECT_THAT(Push(3, 1, 0, {0, 1}),
              ElementsAre(Kind::kBufferGradient, Kind::kComputeLambUpdate,
                          Kind::kBufferGradient, Kind::kApply, Kind::kSendNorms,
                          Kind::kAck));
  EXPECT_THAT(Pull(4, 0, 1, {1}), ElementsAre(Kind::kRead));
  actions.clear();
  controller_->OnReduced({0, ReductionStage::kTrust}, -1, kStart, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kApply));
}

TEST_F(ControllerTest, SlotsAreClippedBeforeTheTrustRatio) {
  Open({.clip_norm = true, .trust_ratio = true, .slot_count = 1});
  ShardActions actions;
  controller_->OnInit(1, 0, 10, {0}, kStart, &actions);
  Push(2, 0, 0, {0, 1});
  EXPECT_THAT(Push(3, 1, 0, {0, 1}),
              ElementsAre(Kind::kBufferGradient, Kind::kReduceGradients,
                          Kind::kBufferGradient, Kind::kReduceGradients,
                          Kind::kSendNorms, Kind::kAck));
  actions.clear();
  controller_->OnReduced({0, ReductionStage::kGradient}, 25, kStart, &actions);
  EXPECT_THAT(
      Kinds(actions),
      ElementsAre(Kind::kApply, Kind::kComputeLambUpdate, Kind::kSendNorms));
  EXPECT_EQ(actions[0].block, 1u);
  EXPECT_EQ(actions[0].squared_norm, 25);
  actions.clear();
  controller_->OnReduced({0, ReductionStage::kTrust}, -1, kStart, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kApply));
  EXPECT_EQ(actions[0].block, 0u);
}

// It has no tensor's norm to wait for.
TEST_F(ControllerTest, AShardOfSlotsAloneIsDoneWithTheGradientsNorm) {
  Open({.clip_norm = true, .trust_ratio = true, .slot_count = 2});
  ShardActions actions;
  controller_->OnInit(1, 0, 10, {}, kStart, &actions);
  Push(2, 0, 0, {0, 1});
  Push(3, 1, 0, {0, 1});
  Pull(4, 0, 1, {0});
  actions.clear();
  controller_->OnReduced({0, ReductionStage::kGradient}, 25, kStart, &actions);
  EXPECT_THAT(Kinds(actions),
              ElementsAre(Kind::kApply, Kind::kApply, Kind::kRead));
}

TEST_F(ControllerTest, ANormThatIsNotFiniteSkipsTheClock) {
  Open({.skip_non_finite = true, .slot_count = 1});
  ShardActions actions;
  controller_->OnInit(1, 0, 10, {0}, kStart, &actions);
  Push(2, 0, 0, {0, 1});
  EXPECT_THAT(Push(3, 1, 0, {0, 1}),
              ElementsAre(Kind::kBufferGradient, Kind::kReduceGradients,
                          Kind::kBufferGradient, Kind::kReduceGradients,
                          Kind::kSendNorms, Kind::kAck));
  EXPECT_THAT(Pull(4, 0, 1, {0}), IsEmpty());
  actions.clear();
  controller_->OnReduced({0}, std::numeric_limits<double>::infinity(), kStart,
                         &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kDropGradients,
                                          Kind::kDropGradients, Kind::kRead));
  EXPECT_EQ(controller_->skipped_clocks(), 1u);
  Push(5, 0, 1, {0, 1});
  Push(6, 1, 1, {0, 1});
  actions.clear();
  controller_->OnReduced({1}, 3, kStart, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kApply, Kind::kApply));
  EXPECT_EQ(controller_->skipped_clocks(), 1u);
}

// It comes with its close, before any block is complete.
TEST_F(ControllerTest, AWorkersWordSkipsTheClockToo) {
  for (const uint32_t slots : {0u, 1u}) {
    SCOPED_TRACE(slots);
    Open({.skip_non_finite = true, .slot_count = slots});
    ShardActions actions;
    const std::vector<BlockIndex> dense = {0, 1};
    controller_->OnInit(1, 0, 10, absl::MakeConstSpan(dense).first(2 - slots),
                        kStart, &actions);
    PushFacts without;
    without.non_finite = true;
    EXPECT_THAT(Push(2, 0, 0, {0}),
                ElementsAre(Kind::kBufferGradient, Kind::kAck));
    EXPECT_THAT(Push(3, 1, without),
                ElementsAre(Kind::kDropGradients, Kind::kAck));
    EXPECT_THAT(
        Push(4, 0, 0, {1}),
        ElementsAre(Kind::kBufferGradient, Kind::kDropGradients, Kind::kAck));
    EXPECT_EQ(controller_->skipped_clocks(), 1u);
    EXPECT_THAT(Pull(5, 0, 1, {0}), ElementsAre(Kind::kRead));
  }
  // Nothing is skipped where the job does not say so.
  OpenAndInit(ConsistencyMode::kSync);
  PushFacts without;
  without.non_finite = true;
  Push(2, 1, without);
  EXPECT_THAT(Push(3, 0, 0, {0, 1}),
              ElementsAre(Kind::kBufferGradient, Kind::kApply,
                          Kind::kBufferGradient, Kind::kApply, Kind::kAck));
  EXPECT_EQ(controller_->skipped_clocks(), 0u);
  EXPECT_EQ(controller_->left_out_pushes(1), 1u);
  // At the next clock there is no gradient at all.
  without.clock = 1;
  Push(4, 0, without);
  Push(5, 1, without);
  EXPECT_EQ(controller_->skipped_clocks(), 1u);
  EXPECT_EQ(controller_->left_out_pushes(1), 1u);
  EXPECT_EQ(controller_->left_out_pushes(0), 0u);
}

TEST_F(ControllerTest, EachPushWithoutGradientCountsWhereNobodyWaits) {
  for (const auto mode :
       {ConsistencyMode::kAsync, ConsistencyMode::kBoundedStaleness}) {
    OpenAndInit(mode);
    PushFacts without;
    without.non_finite = true;
    Push(2, 0, without);
    Push(3, 1, without);
    without.clock = 1;
    Push(4, 0, without);
    Push(5, 0, without);  // again
    Push(6, 1, 1, {0, 1});
    EXPECT_EQ(controller_->skipped_clocks(), 3u);
    EXPECT_EQ(controller_->left_out_pushes(0), 0u);
  }
}

TEST_F(ControllerTest, AsyncNormsAreOfTheMean) {
  Open({.mode = ConsistencyMode::kAsync, .clip_norm = true});
  Init();
  PushFacts push;
  push.sample_count = 10;
  push.blocks_in_clock = 1;
  push.blocks = {1};
  push.squared_norm = 900;
  EXPECT_THAT(Push(2, 0, push),
              ElementsAre(Kind::kBufferGradient, Kind::kApply, Kind::kAck));
  EXPECT_EQ(last_[1].squared_norm, 9.0);
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
  Open({.mode = ConsistencyMode::kAsync, .block_count = 3, .slot_count = 3});
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
  EXPECT_THAT(std::string(past.message()),
              HasSubstr("smallest possible one is at clocks 2,0"));
  EXPECT_EQ(BeginCut(7, {2}).code(), absl::StatusCode::kInvalidArgument);
  // Worker 1 would be held at 2 while the chief needs it at 3 to get to 5.
  const absl::Status apart = BeginCut(7, {5, 2});
  EXPECT_EQ(apart.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(apart.message()), HasSubstr("3 apart"));
  EXPECT_TRUE(BeginCut(7, {4, 2}).ok());
  EXPECT_EQ(BeginCut(7, {4, 3}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Pull(9, 0, 0, {0}, 8), ElementsAre(Kind::kFail));
  EXPECT_THAT(std::string(failure_.message()),
              HasSubstr("cut 8 is not announced"));
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
    options.mode = mode_;
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
              HasSubstr("the end of cut 1 by evaluator:0 at e:3 (last heard of "
                        "evaluating clock 1, 3 of 9)"));
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

TEST_F(ControllerTest, ParkedCallsAreBounded) {
  Open({.mode = ConsistencyMode::kSync, .parked_max = 2});
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
