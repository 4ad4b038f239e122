// Goal: the chief has a change of the regime announced with its clock, has it
// begin when all ranks are there, and tells what has become of it; what does
// not come about changes nothing. Method: an exchange that writes its calls
// down.

#include "worker/training/regime_changer.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/regime_rules.h"
#include "common/regime/job_regimes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/assigned_job.h"
#include "tests/testing/fakes/idle_exchange.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FakeExchange final : public IdleExchange {
 public:
  absl::StatusOr<std::vector<int64_t>> BeginCut(const Cut& cut) override {
    EXPECT_EQ(cut.use, CutUse::kRegime);
    EXPECT_NE(cut.id, 0u);
    log.push_back(absl::StrCat("begin ", absl::StrJoin(cut.clocks, ","), " ",
                               RegimeText(ToProto(cut.regime.value()))));
    if (!refusal.ok()) return refusal;
    return raised.empty() ? cut.clocks : raised;
  }
  absl::Status EndCut(uint64_t, int64_t clock) override {
    log.push_back(absl::StrCat("end ", clock));
    return absl::OkStatus();
  }
  absl::Status AwaitCut(uint64_t, int64_t clock) override {
    log.push_back(absl::StrCat("await ", clock));
    return absl::OkStatus();
  }
  absl::Status PrepareRegime(uint64_t, int64_t clock) override {
    log.push_back(absl::StrCat("prepare ", clock));
    return prepare;
  }
  absl::Status CommitRegime(uint64_t, int64_t clock) override {
    log.push_back(absl::StrCat("commit ", clock));
    return commit;
  }

  std::vector<std::string> log;
  absl::Status refusal;
  absl::Status prepare;
  absl::Status commit;
  std::vector<int64_t> raised;
};

class RegimeChangerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    job_.assignment = AssignToOne(DigitsJob(), MlpModel(784, 8, 10)).assignment;
    // A second worker, which the model needs not know.
    *job_.assignment.add_workers() = job_.assignment.workers(0);
    job_.assignment.mutable_workers(1)->set_rank(1);
    ASSERT_OK_AND_ASSIGN(job_.regimes, ReadRegimes(job_.assignment));
    changer_.emplace(job_, Epochs{.steps_per_epoch = 10, .clocks_total = 20},
                     &exchange_, [this](const RegimeTransition& transition) {
                       told_.push_back(transition);
                     });
  }
  void Request(ConsistencySpec::Mode mode, const std::string& reason = "r") {
    RegimeChange change;
    change.set_mode(mode);
    changer_->Request(change, reason);
  }

  FakeExchange exchange_;
  PreparedJob job_;
  std::vector<RegimeTransition> told_;
  std::optional<RegimeChanger> changer_;
};

TEST_F(RegimeChangerTest, AChangeIsAnnouncedAwaitedAndCommitted) {
  ASSERT_OK(changer_->BeforeStep(3));
  EXPECT_THAT(exchange_.log, IsEmpty());
  Request(ConsistencySpec::ASYNC);
  ASSERT_OK(changer_->BeforeStep(4));
  ASSERT_TRUE(changer_->IsOpen());
  EXPECT_EQ(changer_->clock(), 6);
  ASSERT_OK(changer_->BeforeStep(5));
  ASSERT_OK(changer_->Commit(6));
  EXPECT_THAT(exchange_.log, ElementsAre("begin 6,6 ASYNC, learning rate x 0.5",
                                         "await 6", "prepare 6", "commit 6"));
  EXPECT_THAT(told_, IsEmpty());
  changer_->ReportDone();
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].regime().first_clock(), 6);
  EXPECT_EQ(told_[0].reason(), "r");
  EXPECT_EQ(told_[0].error(), "");
  EXPECT_TRUE(told_[0].has_time());
  EXPECT_FALSE(changer_->IsOpen());
}

TEST_F(RegimeChangerTest, OneChangeAtATime) {
  Request(ConsistencySpec::ASYNC);
  Request(ConsistencySpec::ASYNC);  // the scheduler's stream was broken
  EXPECT_THAT(told_, IsEmpty());
  Request(ConsistencySpec::SYNC, "another");
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_THAT(told_[0].error(), HasSubstr("is under way"));
  EXPECT_EQ(told_[0].reason(), "another");
}

TEST_F(RegimeChangerTest, ACutThatIsNotToBeHadIsTold) {
  exchange_.refusal = absl::DeadlineExceededError("no answer from ps:1 at h:1");
  Request(ConsistencySpec::ASYNC);
  ASSERT_OK(changer_->BeforeStep(4));
  EXPECT_FALSE(changer_->IsOpen());
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].error(), "no answer from ps:1 at h:1");
  // Another one may be asked for.
  exchange_.refusal = absl::OkStatus();
  Request(ConsistencySpec::ASYNC, "again");
  ASSERT_OK(changer_->BeforeStep(5));
  EXPECT_TRUE(changer_->IsOpen());
}

// Such as the cut of the change before, while a shard has not ended it.
TEST_F(RegimeChangerTest, ACutInTheWayIsWaitedFor) {
  const absl::Time start = absl::FromUnixSeconds(1000);
  exchange_.refusal = absl::FailedPreconditionError("first the regime cut");
  Request(ConsistencySpec::ASYNC);
  ASSERT_OK(changer_->BeforeStep(4, start));
  ASSERT_OK(changer_->BeforeStep(5, start + absl::Seconds(9)));
  EXPECT_THAT(told_, IsEmpty());
  EXPECT_FALSE(changer_->IsOpen());
  exchange_.refusal = absl::OkStatus();
  ASSERT_OK(changer_->BeforeStep(6, start + absl::Seconds(9)));
  ASSERT_TRUE(changer_->IsOpen());
  EXPECT_EQ(changer_->clock(), 8);
  // It is given up in the end; the next one has time of its own.
  ASSERT_OK(changer_->PutOff(8));
  exchange_.refusal = absl::FailedPreconditionError("first the regime cut");
  ASSERT_OK(changer_->BeforeStep(8, start + absl::Seconds(20)));
  EXPECT_THAT(told_, IsEmpty());
  ASSERT_OK(changer_->BeforeStep(9, start + absl::Seconds(30)));
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].error(), "first the regime cut");
  Request(ConsistencySpec::ASYNC, "again");
  ASSERT_OK(changer_->BeforeStep(10, start + absl::Seconds(31)));
  EXPECT_EQ(told_.size(), 1u);
}

TEST_F(RegimeChangerTest, NothingChangesBehindTheLastClock) {
  Request(ConsistencySpec::ASYNC);
  ASSERT_OK(changer_->BeforeStep(18));
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_THAT(told_[0].error(), HasSubstr("ends with clock 19"));
  EXPECT_THAT(exchange_.log, IsEmpty());
  exchange_.raised = {20, 20};
  Request(ConsistencySpec::ASYNC, "again");
  ASSERT_OK(changer_->BeforeStep(10));
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_THAT(exchange_.log, ElementsAre(HasSubstr("begin 12,12"), "end 10"));
}

TEST_F(RegimeChangerTest, AChangeThatIsPutOffIsTriedAgain) {
  Request(ConsistencySpec::ASYNC);
  ASSERT_OK(changer_->BeforeStep(4));
  ASSERT_OK(changer_->PutOff(6));
  EXPECT_THAT(told_, IsEmpty());
  ASSERT_OK(changer_->BeforeStep(6));
  EXPECT_EQ(changer_->clock(), 8);
}

TEST_F(RegimeChangerTest, WhatCannotBePreparedLeavesTheJobAsItWas) {
  exchange_.prepare = absl::UnavailableError("rank 1 (worker:1 at h:1)");
  RegimeChange change;
  change.set_strategy(ALL_REDUCE);
  changer_->Request(change, "r");
  EXPECT_TRUE(changer_->WantsOtherExchange());
  ASSERT_OK(changer_->BeforeStep(4));
  ASSERT_OK(changer_->Commit(6));
  EXPECT_THAT(exchange_.log, ElementsAre("begin 6,6 ALL_REDUCE SYNC", "await 6",
                                         "prepare 6", "end 6"));
  EXPECT_FALSE(changer_->IsOpen());
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].error(), "rank 1 (worker:1 at h:1)");
  EXPECT_FALSE(changer_->WantsOtherExchange());
}

// A change that names the strategy which the job has is one of the mode alone:
// nothing stands in its way, and it stands in no checkpoint's.
TEST_F(RegimeChangerTest, ThePresentStrategyIsNoChangeOfIt) {
  job_.assignment.mutable_evaluator()->set_rank(2);
  RegimeChange change;
  change.set_strategy(PARAMETER_SERVER);
  change.set_mode(ConsistencySpec::ASYNC);
  changer_->Request(change, "r");
  EXPECT_FALSE(changer_->WantsOtherExchange());
  ASSERT_OK(changer_->BeforeStep(4));
  EXPECT_TRUE(changer_->IsOpen());
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(RegimeChangerTest, AnEvaluatorKeepsTheStrategy) {
  job_.assignment.mutable_evaluator()->set_rank(2);
  RegimeChange change;
  change.set_strategy(ALL_REDUCE);
  changer_->Request(change, "r");
  EXPECT_TRUE(changer_->WantsOtherExchange());
  ASSERT_OK(changer_->BeforeStep(4));
  EXPECT_FALSE(changer_->IsOpen());
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_THAT(told_[0].error(), HasSubstr("evaluator"));
}

TEST_F(RegimeChangerTest, ACommitThatFailsEndsTheJob) {
  exchange_.commit = absl::FailedPreconditionError("ps:1 at h:1: abandoned");
  Request(ConsistencySpec::ASYNC);
  ASSERT_OK(changer_->BeforeStep(4));
  const absl::Status failed = changer_->Commit(6);
  EXPECT_THAT(std::string(failed.message()),
              AllOf(HasSubstr("at clock 6"), HasSubstr("ps:1 at h:1")));
  changer_->Finish();
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_THAT(told_[0].error(), HasSubstr("makes no more steps"));
  Request(ConsistencySpec::ASYNC, "late");
  ASSERT_EQ(told_.size(), 2u);
}

TEST_F(RegimeChangerTest, WhatTheJobCannotIsTold) {
  Request(ConsistencySpec::SYNC);
  ASSERT_OK(changer_->BeforeStep(4));
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_THAT(told_[0].error(), HasSubstr("trains so already"));
}

// --- The job's own changes ---

class OwnChangeTest : public RegimeChangerTest {
 protected:
  void SetUp() override {
    RegimeChangerTest::SetUp();
    changer_.emplace(
        job_, Epochs{.steps_per_epoch = 50, .clocks_total = 100}, &exchange_,
        [this](const RegimeTransition& transition) {
          told_.push_back(transition);
        },
        [this](bool is_own, RegimeChanger::End end,
               const RegimeTransition& transition) {
          const char* const text = end == RegimeChanger::End::kMade ? "made"
                                   : end == RegimeChanger::End::kFailed
                                       ? "failed"
                                       : "gave way";
          ends_.push_back(absl::StrCat(is_own ? "own " : "", text, " ",
                                       transition.reason()));
        });
  }
  bool Try(ConsistencySpec::Mode mode, const std::string& reason,
           int64_t not_before = 0) {
    RegimeChange change;
    change.set_mode(mode);
    return changer_->Try(change, reason, not_before);
  }
  std::vector<std::string> ends_;
};

TEST_F(OwnChangeTest, TheClockIsTheOneThatIsAskedFor) {
  EXPECT_TRUE(Try(ConsistencySpec::ASYNC, "auto: trying", 30));
  EXPECT_TRUE(changer_->HasOwnToAnnounce());
  ASSERT_OK(changer_->BeforeStep(4));
  EXPECT_FALSE(changer_->HasOwnToAnnounce());
  EXPECT_EQ(changer_->clock(), 30);
  ASSERT_OK(changer_->GiveWay(5));
  EXPECT_TRUE(changer_->IsOpen());
  ASSERT_OK(changer_->Commit(30));
  changer_->ReportDone();
  EXPECT_THAT(ends_, ElementsAre("own made auto: trying"));
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].reason(), "auto: trying");
}

TEST_F(OwnChangeTest, ALaterOneTakesThePlaceOfAnAnnouncedOne) {
  Try(ConsistencySpec::ASYNC, "auto: back", 30);
  ASSERT_OK(changer_->BeforeStep(4));
  Try(ConsistencySpec::ASYNC, "auto: back at once");
  ASSERT_OK(changer_->GiveWay(9));
  EXPECT_FALSE(changer_->IsOpen());
  ASSERT_OK(changer_->BeforeStep(9));
  EXPECT_EQ(changer_->clock(), 11);
  EXPECT_THAT(exchange_.log, ElementsAre(HasSubstr("begin 30,30"), "end 9",
                                         HasSubstr("begin 11,11")));
  EXPECT_THAT(told_, IsEmpty());
  EXPECT_THAT(ends_, IsEmpty());
}

// A user need not wait for the end of a trial.
TEST_F(OwnChangeTest, AUsersChangeGoesFirst) {
  Try(ConsistencySpec::ASYNC, "auto: back", 30);
  ASSERT_OK(changer_->BeforeStep(4));
  RegimeChange change;
  change.set_mode(ConsistencySpec::BOUNDED_STALENESS);
  change.set_staleness_bound(3);
  changer_->Request(change, "synctl regime");
  changer_->Request(change, "synctl regime");  // the stream was broken
  EXPECT_THAT(told_, IsEmpty());
  EXPECT_FALSE(Try(ConsistencySpec::ASYNC, "auto: back", 30));
  ASSERT_OK(changer_->GiveWay(5));
  EXPECT_THAT(ends_, ElementsAre("own gave way auto: back"));
  ASSERT_OK(changer_->BeforeStep(5));
  EXPECT_EQ(changer_->clock(), 7);
  EXPECT_FALSE(Try(ConsistencySpec::ASYNC, "auto: back", 30));
  ASSERT_OK(changer_->Commit(7));
  changer_->ReportDone();
  EXPECT_THAT(exchange_.log,
              ElementsAre(HasSubstr("begin 30,30 ASYNC"), "end 5",
                          HasSubstr("begin 7,7 BOUNDED_STALENESS, bound 3"),
                          "await 7", "prepare 7", "commit 7"));
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].reason(), "synctl regime");
  EXPECT_THAT(ends_,
              ElementsAre("own gave way auto: back", "made synctl regime"));
  EXPECT_TRUE(Try(ConsistencySpec::ASYNC, "auto: back"));
}

// The job's own change is made while the user's waits for it.
TEST_F(OwnChangeTest, AUsersChangeFollowsOneThatIsBeingMade) {
  Try(ConsistencySpec::ASYNC, "auto: trying");
  ASSERT_OK(changer_->BeforeStep(4));
  Request(ConsistencySpec::SYNC, "synctl regime");
  Request(ConsistencySpec::ASYNC, "another");
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_THAT(told_[0].error(), HasSubstr("is under way"));
  ASSERT_OK(changer_->Commit(6));
  changer_->ReportDone();
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_EQ(told_[1].reason(), "auto: trying");
  ASSERT_OK(changer_->BeforeStep(6));
  // The exchange knows nothing of the change before.
  ASSERT_EQ(told_.size(), 3u);
  EXPECT_EQ(told_[2].reason(), "synctl regime");
  EXPECT_THAT(ends_,
              ElementsAre("own made auto: trying", "failed synctl regime"));
}

TEST_F(OwnChangeTest, TheEndOfTheStepsIsTheirEnd) {
  Try(ConsistencySpec::ASYNC, "auto: back", 30);
  ASSERT_OK(changer_->BeforeStep(4));
  Request(ConsistencySpec::ASYNC, "synctl regime");
  changer_->Finish();
  EXPECT_THAT(ends_,
              ElementsAre("own failed auto: back", "failed synctl regime"));
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_THAT(told_[1].error(), HasSubstr("makes no more steps"));
}

TEST_F(OwnChangeTest, WhatStaysIsTold) {
  changer_->TellStay("auto: SYNC stays; loss/s: ASYNC 0.1 against 0.2");
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(RegimeText(told_[0].regime()), "SYNC");
  EXPECT_EQ(told_[0].regime().first_clock(), 0);
  EXPECT_TRUE(told_[0].has_time());
  EXPECT_THAT(ends_, IsEmpty());
}

}  // namespace
}  // namespace syncline::worker
