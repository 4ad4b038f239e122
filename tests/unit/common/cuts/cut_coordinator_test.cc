// Goal: shards agree on a cut or let it go, whatever they answer and in
// whatever order, and its owner learns which. Method: the test is the shards;
// tests/simulation/cut_agreement_test.cc has real ones.

#include "common/cuts/cut_coordinator.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = CutAction::Kind;
using Clocks = std::vector<int64_t>;

const absl::Time kStart = absl::UnixEpoch();

CutAnswer Refused(Clocks smallest) {
  return {.status = absl::OutOfRangeError("a worker is past the cut"),
          .smallest = std::move(smallest)};
}

class CutCoordinatorTest : public ::testing::Test {
 protected:
  CutCoordinatorTest() {
    options_.label = "job j-7";
    options_.shards = {"ps:0 at a:1", "ps:1 at b:2"};
    options_.attempt = 1;
    options_.raises_max = 2;
    Open();
  }
  void Open() { coordinator_.emplace(options_); }

  // Each returns the kinds of the actions it caused; last_ has them.
  std::vector<Kind> Kinds() {
    last_ = std::exchange(actions_, {});
    std::vector<Kind> kinds;
    for (const CutAction& action : last_) kinds.push_back(action.kind);
    return kinds;
  }
  std::vector<Kind> Ask(uint64_t name, Clocks clocks, int64_t period = 1) {
    const absl::Status taken =
        coordinator_->Request({.name = name,
                               .use = CutUse::kCheckpoint,
                               .clocks = std::move(clocks),
                               .period = period,
                               .hold = absl::Seconds(40),
                               .deadline = kStart + absl::Seconds(60)},
                              now_, &actions_);
    EXPECT_TRUE(taken.ok()) << taken;
    return Kinds();
  }
  std::vector<Kind> Begun(uint32_t shard, uint64_t cut_id,
                          const CutAnswer& answer = {}) {
    coordinator_->OnBegun(shard, cut_id, answer, now_, &actions_);
    return Kinds();
  }
  std::vector<Kind> Ended(uint32_t shard, uint64_t cut_id,
                          const absl::Status& status = absl::OkStatus()) {
    coordinator_->OnEnded(shard, cut_id, status, now_, &actions_);
    return Kinds();
  }
  std::vector<Kind> End(uint64_t name) {
    EXPECT_TRUE(coordinator_->End(name, now_, &actions_));
    return Kinds();
  }
  std::vector<Kind> Tick(absl::Duration later) {
    now_ += later;
    coordinator_->OnTick(now_, &actions_);
    return Kinds();
  }
  // Both shards accept the try under way.
  uint64_t Accept(uint64_t name) {
    const uint64_t id = coordinator_->IdOf(name);
    Begun(0, id);
    EXPECT_THAT(Begun(1, id), ElementsAre(Kind::kAgreed));
    return id;
  }
  // One refuses, and both have let go.
  std::vector<Kind> Refuse(uint64_t name, const CutAnswer& answer) {
    const uint64_t id = coordinator_->IdOf(name);
    Begun(0, id);
    EXPECT_THAT(Begun(1, id, answer), ElementsAre(Kind::kEnd, Kind::kEnd));
    EXPECT_THAT(Ended(0, id), IsEmpty());
    return Ended(1, id, absl::FailedPreconditionError("cut is not announced"));
  }

  CutCoordinator::Options options_;
  std::optional<CutCoordinator> coordinator_;
  absl::Time now_ = kStart;
  CutActions actions_;
  CutActions last_;
};

TEST_F(CutCoordinatorTest, ACutThatAllAcceptIsAnnouncedOnce) {
  EXPECT_THAT(Ask(5, {4, 6}), ElementsAre(Kind::kBegin, Kind::kBegin));
  const uint64_t id = last_[0].cut_id;
  EXPECT_EQ(last_[1].shard, 1u);
  EXPECT_EQ(last_[1].cut_id, id);
  EXPECT_EQ(last_[1].clocks, (Clocks{4, 6}));
  EXPECT_EQ(last_[1].use, CutUse::kCheckpoint);
  EXPECT_EQ(last_[1].hold, absl::Seconds(40));
  EXPECT_THAT(Begun(1, id), IsEmpty());
  EXPECT_THAT(Begun(1, id), IsEmpty()) << "the answer came twice";
  EXPECT_THAT(Begun(0, id), ElementsAre(Kind::kAgreed));
  EXPECT_EQ(last_[0].name, 5u);
  EXPECT_EQ(last_[0].clocks, (Clocks{4, 6}));
  EXPECT_THAT(End(5), ElementsAre(Kind::kEnd, Kind::kEnd));
  EXPECT_THAT(Ended(0, id), IsEmpty());
  EXPECT_THAT(Ended(1, id), ElementsAre(Kind::kEnded));
  EXPECT_TRUE(last_[0].status.ok());
  EXPECT_TRUE(coordinator_->idle());
  EXPECT_FALSE(coordinator_->End(5, now_, &actions_));
}

TEST_F(CutCoordinatorTest, AFirstIdThatOthersKnowIsUsed) {
  ASSERT_TRUE(
      coordinator_
          ->Request({.name = 9, .clocks = {4}, .id = 9}, now_, &actions_)
          .ok());
  EXPECT_EQ(coordinator_->IdOf(9), 9u);
  EXPECT_EQ(coordinator_->IdOf(8), 0u);
}

TEST_F(CutCoordinatorTest, ARefusedCutIsWithdrawnEverywhereThenRaised) {
  Ask(5, {4, 6});
  const uint64_t first = coordinator_->IdOf(5);
  EXPECT_THAT(Begun(0, first), IsEmpty());
  EXPECT_THAT(Begun(1, first, Refused({9, 2})),
              ElementsAre(Kind::kEnd, Kind::kEnd));
  EXPECT_EQ(last_[0].cut_id, first);
  EXPECT_THAT(Ended(1, first), IsEmpty()) << "shard 0 still holds workers";
  EXPECT_THAT(Ended(0, first), ElementsAre(Kind::kBegin, Kind::kBegin));
  EXPECT_EQ(last_[0].clocks, (Clocks{9, 6})) << "each clock by itself";
  EXPECT_GT(last_[0].cut_id, first);
  EXPECT_THAT(Begun(0, first), IsEmpty()) << "an answer to the first try";
  EXPECT_GT(Accept(5), first);
}

TEST_F(CutCoordinatorTest, WorkersThatRunOnAreCaughtByHeadroom) {
  options_.raises_max = 15;
  Open();
  Ask(5, {0, 0});
  int64_t at = 0;
  int tries = 0;
  for (; tries < 16 && last_.back().clocks[0] < at + 30; ++tries) {
    ASSERT_THAT(Refuse(5, Refused({at += 30, 0})),
                ElementsAre(Kind::kBegin, Kind::kBegin));
  }
  EXPECT_LT(tries, 9);
  EXPECT_LT(last_.back().clocks[0], at + 256);
  EXPECT_LE(last_.back().clocks[1], 256);
}

TEST_F(CutCoordinatorTest, ClocksStayAsCloseAsTheModeAllows) {
  options_.spread = 0;  // SYNC
  Open();
  Ask(5, {3, 3});
  Refuse(5, Refused({3, 7}));
  EXPECT_EQ(last_[0].clocks, (Clocks{7, 7}));
  options_.spread = 2;  // BOUNDED_STALENESS with bound 2
  Open();
  Ask(5, {3, 3});
  Refuse(5, Refused({3, 7}));
  EXPECT_EQ(last_[0].clocks, (Clocks{5, 7}));
}

TEST_F(CutCoordinatorTest, ACutAtAnEpochsEndIsRaisedToAnother) {
  Ask(5, {10, 10}, /*period=*/10);
  Refuse(5, Refused({11, 4}));
  EXPECT_EQ(last_[0].clocks, (Clocks{20, 10}));
  options_.spread = 0;
  Open();
  Ask(5, {0, 0}, /*period=*/10);
  Refuse(5, Refused({11, 4}));
  EXPECT_EQ(last_[0].clocks, (Clocks{20, 20}));
}

TEST_F(CutCoordinatorTest, AfterTheLastTryTheOwnerLearnsWhoIsInTheWay) {
  Ask(5, {4, 6});
  for (const int64_t clock : {9, 19}) {
    ASSERT_THAT(Refuse(5, Refused({0, clock})),
                ElementsAre(Kind::kBegin, Kind::kBegin));
  }
  EXPECT_THAT(Refuse(5, Refused({0, 30})), ElementsAre(Kind::kFailed));
  EXPECT_EQ(last_[0].name, 5u);
  EXPECT_THAT(std::string(last_[0].status.message()),
              AllOf(HasSubstr("job j-7: the checkpoint cut: not agreed upon"),
                    HasSubstr("after 3 tries: ps:1 at b:2 cannot be cut "
                              "before clock 30 of the worker of rank 1, the "
                              "cut was at clock 20")));
  EXPECT_TRUE(coordinator_->idle());
}

TEST_F(CutCoordinatorTest, ARefusalThatHoldsForAllClocksEndsIt) {
  Ask(5, {4, 6});
  const CutAnswer never = {.status = absl::UnimplementedError("no snapshots")};
  EXPECT_THAT(Refuse(5, never), ElementsAre(Kind::kFailed));
  EXPECT_EQ(last_[0].status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(last_[0].status.message()),
              HasSubstr("ps:1 at b:2: no snapshots"));
  Ask(6, {4, 6});
  EXPECT_THAT(Refuse(6, Refused({1, 2, 3})), ElementsAre(Kind::kFailed))
      << "clocks of another job";
}

TEST_F(CutCoordinatorTest, WhereOthersHaveAnnouncedTwoItWaits) {
  Ask(5, {4, 6});
  const CutAnswer full = {
      .status = absl::FailedPreconditionError("two are announced"),
      .smallest = Clocks{4, 5}};
  EXPECT_THAT(Refuse(5, full), IsEmpty());
  const absl::Time retry = coordinator_->next_tick();
  EXPECT_GT(retry, now_);
  EXPECT_LT(retry, now_ + absl::Seconds(1));
  EXPECT_THAT(Tick(retry - now_), ElementsAre(Kind::kBegin, Kind::kBegin));
  EXPECT_EQ(last_[0].clocks, (Clocks{4, 6}));
}

TEST_F(CutCoordinatorTest, LostMessagesAreSentAgain) {
  options_.resend_after = absl::Seconds(1);
  Open();
  Ask(5, {4, 6});
  const uint64_t id = coordinator_->IdOf(5);
  Begun(0, id);
  EXPECT_EQ(coordinator_->next_tick(), now_ + absl::Seconds(1));
  EXPECT_THAT(Tick(absl::Seconds(1)), ElementsAre(Kind::kBegin));
  EXPECT_EQ(last_[0].shard, 1u);
  EXPECT_THAT(Tick(absl::Milliseconds(999)), IsEmpty());
  EXPECT_THAT(Begun(1, id), ElementsAre(Kind::kAgreed));
  EXPECT_THAT(Tick(absl::Hours(1)), IsEmpty()) << "its deadline was met";
  End(5);
  Ended(1, id);
  EXPECT_THAT(Tick(absl::Seconds(1)), ElementsAre(Kind::kEnd));
  EXPECT_EQ(last_[0].shard, 0u);
}

TEST_F(CutCoordinatorTest, ASilentShardIsNamedAtTheDeadlineAndStillLetGo) {
  options_.resend_after = absl::Seconds(1);
  Open();
  Ask(5, {4, 6});
  const uint64_t id = coordinator_->IdOf(5);
  Begun(0, id);
  EXPECT_THAT(Tick(absl::Seconds(60)),
              ElementsAre(Kind::kBegin, Kind::kFailed, Kind::kEnd, Kind::kEnd));
  EXPECT_EQ(last_[1].status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(last_[1].status.message()),
              HasSubstr("at clocks 4,6 after 1 tries: no answer from ps:1"));
  EXPECT_THAT(Begun(1, id), IsEmpty()) << "too late";
  EXPECT_THAT(Ended(0, id), IsEmpty());
  EXPECT_THAT(Ask(6, {1, 1}), IsEmpty()) << "shard 1 may still hold cut 5";
  EXPECT_THAT(Tick(absl::Seconds(1)), ElementsAre(Kind::kEnd, Kind::kFailed));
  EXPECT_THAT(Ended(1, id), IsEmpty());
  EXPECT_TRUE(coordinator_->idle());
}

TEST_F(CutCoordinatorTest, CutsOfOneMemberComeInOrderThreeAtATime) {
  Ask(5, {4, 6});
  EXPECT_THAT(Ask(6, {3, 9}), IsEmpty()) << "behind the first";
  const uint64_t first = coordinator_->IdOf(5);
  Begun(0, first);
  EXPECT_THAT(Begun(1, first),
              ElementsAre(Kind::kAgreed, Kind::kBegin, Kind::kBegin));
  EXPECT_EQ(last_[1].clocks, (Clocks{4, 9}));
  EXPECT_GT(last_[1].cut_id, first);
  Accept(6);
  EXPECT_THAT(Ask(7, {2, 3}), ElementsAre(Kind::kBegin, Kind::kBegin));
  EXPECT_EQ(last_[1].clocks, (Clocks{2, 3})) << "before them, not behind";
  EXPECT_GT(last_[1].cut_id, first);
  Accept(7);
  EXPECT_THAT(Ask(8, {0, 0}), IsEmpty()) << "three are announced";
  EXPECT_EQ(coordinator_->next_tick(), kStart + absl::Seconds(60));
  End(5);
  Ended(0, first);
  EXPECT_THAT(Ended(1, first),
              ElementsAre(Kind::kEnded, Kind::kBegin, Kind::kBegin));
  EXPECT_EQ(last_[1].clocks, (Clocks{0, 0})) << "as soon as possible";
}

TEST_F(CutCoordinatorTest, TheOwnerLearnsThatAShardHasGivenItUp) {
  Ask(5, {4, 6});
  uint64_t id = Accept(5);
  End(5);
  Ended(0, id, absl::FailedPreconditionError("cut was abandoned"));
  EXPECT_THAT(Ended(1, id), ElementsAre(Kind::kEnded));
  EXPECT_EQ(last_[0].status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(last_[0].status.message()),
              HasSubstr("ps:0 at a:1: cut was abandoned"));
  Ask(6, {8, 8});
  id = Accept(6);
  coordinator_->OnLost(6, absl::FailedPreconditionError("held for too long"),
                       now_, &actions_);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kEnd, Kind::kEnd));
  Ended(0, id);
  EXPECT_THAT(Ended(1, id), ElementsAre(Kind::kEnded));
  EXPECT_THAT(std::string(last_[0].status.message()),
              HasSubstr("held for too long"));
}

TEST_F(CutCoordinatorTest, ACutThatIsNotWantedAnyMoreIsWithdrawn) {
  Ask(5, {4, 6});
  const uint64_t id = coordinator_->IdOf(5);
  Begun(0, id);
  EXPECT_THAT(End(5), ElementsAre(Kind::kFailed, Kind::kEnd, Kind::kEnd));
  EXPECT_EQ(last_[0].status.code(), absl::StatusCode::kCancelled);
  Ended(0, id);
  Ended(1, id);
  EXPECT_TRUE(coordinator_->idle());
}

// Later shards are told of the cuts as the former ones knew them.
TEST_F(CutCoordinatorTest, OtherShardsAreToldWhatIsUnderWay) {
  const auto use = [&](std::vector<std::string> shards) {
    coordinator_->UseShards(std::move(shards), now_, &actions_);
    return Kinds();
  };
  EXPECT_FALSE(coordinator_->Has(1));
  Ask(1, {8, 8});
  const uint64_t first = Accept(1);
  Ask(2, {9, 9});
  Begun(0, coordinator_->IdOf(2));
  EXPECT_TRUE(coordinator_->Has(2));
  // One is agreed on, of the other no shard is sure.
  EXPECT_THAT(
      use({"ps:0 at a:1", "ps:1 at b:2", "ps:2 at c:3"}),
      ElementsAre(Kind::kAgreed, Kind::kBegin, Kind::kBegin, Kind::kBegin));
  EXPECT_EQ(last_[0].cut_id, first);
  EXPECT_EQ(last_[3].shard, 2u);
  const uint64_t second = coordinator_->IdOf(2);
  Begun(0, second);
  Begun(1, second);
  EXPECT_THAT(Begun(2, second, Refused({9, 12})),
              ElementsAre(Kind::kEnd, Kind::kEnd, Kind::kEnd));
  // It is withdrawn, and the first one ends.
  End(1);
  Ended(0, first);
  EXPECT_THAT(use({"ps:0 at a:1"}), ElementsAre(Kind::kEnd, Kind::kEnd));
  EXPECT_THAT(Ended(0, first), ElementsAre(Kind::kEnded));
  EXPECT_THAT(Ended(0, second), ElementsAre(Kind::kBegin));
  EXPECT_THAT(last_[0].clocks, ElementsAre(9, 12));
  EXPECT_THAT(Begun(0, last_[0].cut_id), ElementsAre(Kind::kAgreed));
}

// The shell may have lost the answer with the calls to the former shards.
TEST_F(CutCoordinatorTest, OfAFailedCutTheOwnerIsToldAgain) {
  Ask(1, {8, 8});
  const uint64_t id = coordinator_->IdOf(1);
  Tick(absl::Seconds(60));
  EXPECT_THAT(last_, testing::Contains(
                         testing::Field(&CutAction::kind, Kind::kFailed)));
  coordinator_->UseShards({"ps:0 at a:1"}, now_, &actions_);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kEnd, Kind::kFailed));
  EXPECT_THAT(std::string(last_[1].status.message()), HasSubstr("no answer"));
  EXPECT_THAT(Ended(0, id), IsEmpty());
  EXPECT_TRUE(coordinator_->idle());
}

TEST_F(CutCoordinatorTest, RequestsThatCannotBeAreRefused) {
  const auto refused = [&](CutRequest request) {
    return coordinator_->Request(std::move(request), now_, &actions_);
  };
  EXPECT_EQ(refused({.name = 1}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused({.name = 1, .clocks = {-1}}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused({.name = 1, .clocks = {kCutClockMax + 1}}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused({.name = 1, .clocks = {1}, .period = 0}).code(),
            absl::StatusCode::kInvalidArgument);
  for (uint64_t name = 0; name < CutCoordinator::kRequestsMax; ++name) {
    EXPECT_TRUE(refused({.name = name, .clocks = {1}}).ok());
    EXPECT_EQ(refused({.name = name, .clocks = {1}}).code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(refused({.name = 99, .clocks = {1}}).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(CutCoordinatorTest, ACutAtOneClockIsRaisedInAllClocksTogether) {
  const absl::Status taken =
      coordinator_->Request({.name = 5,
                             .use = CutUse::kRegime,
                             .clocks = {4, 4},
                             .equal_clocks = true,
                             .deadline = kStart + absl::Seconds(60)},
                            now_, &actions_);
  ASSERT_TRUE(taken.ok()) << taken;
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kBegin, Kind::kBegin));
  EXPECT_THAT(Refuse(5, Refused({9, 4})),
              ElementsAre(Kind::kBegin, Kind::kBegin));
  EXPECT_EQ(last_[0].clocks, (Clocks{9, 9}));
}

}  // namespace
}  // namespace syncline
