// Goal: a job's record has how it trained, once each, and says what a later
// attempt trains by. Method: reports of a chief, repeated and failed.

#include "scheduler/core/job/regime_history.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/auto_regime_rules.h"
#include "common/job/regime_rules.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/core/job/regime_policy.h"

namespace syncline::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Mode = ConsistencySpec::Mode;

RegimeTransition To(int64_t clock, Mode mode, int second) {
  RegimeTransition transition;
  transition.mutable_regime()->set_first_clock(clock);
  transition.mutable_regime()->mutable_consistency()->set_mode(mode);
  transition.set_reason("synctl regime");
  transition.mutable_time()->set_seconds(second);
  return transition;
}

std::vector<std::string> InForce(const JobStatus& job) {
  std::vector<std::string> texts;
  for (const Regime& regime : RegimesInForce(job)) {
    texts.push_back(
        absl::StrCat(regime.first_clock(), " ", RegimeText(regime)));
  }
  return texts;
}

class RegimeHistoryTest : public ::testing::Test {
 protected:
  RegimeHistoryTest() {
    job_.mutable_spec()->mutable_consistency()->set_mode(ConsistencySpec::SYNC);
    job_.set_attempt(1);
    BeginRegimes(0, now_, &job_);
  }
  bool Take(const RegimeTransition& transition) {
    return TakeRegime(transition, now_, &job_);
  }
  const absl::Time now_ = absl::FromUnixSeconds(1000);
  JobStatus job_;
};

TEST_F(RegimeHistoryTest, BeginsWithTheSpec) {
  ASSERT_EQ(job_.regimes_size(), 1);
  EXPECT_EQ(job_.regimes(0).reason(), "as submitted");
  EXPECT_THAT(InForce(job_), ElementsAre("0 SYNC"));
}

TEST_F(RegimeHistoryTest, ARepeatCountsOnce) {
  EXPECT_TRUE(Take(To(10, ConsistencySpec::ASYNC, 1)));
  EXPECT_FALSE(Take(To(10, ConsistencySpec::ASYNC, 1)));
  EXPECT_TRUE(Take(To(20, ConsistencySpec::SYNC, 2)));
  EXPECT_THAT(InForce(job_), ElementsAre("0 SYNC", "10 ASYNC", "20 SYNC"));
}

TEST_F(RegimeHistoryTest, WhatHasFailedIsNotInForce) {
  RegimeTransition failed = To(0, ConsistencySpec::ASYNC, 1);
  failed.set_error("no answer from ps:1 at h:1");
  EXPECT_TRUE(Take(failed));
  EXPECT_THAT(InForce(job_), ElementsAre("0 SYNC"));
  EXPECT_EQ(job_.regimes(1).error(), "no answer from ps:1 at h:1");
}

TEST_F(RegimeHistoryTest, AnAttemptLosesLaterChanges) {
  Take(To(10, ConsistencySpec::ASYNC, 1));
  Take(To(20, ConsistencySpec::SYNC, 2));
  job_.set_attempt(2);
  BeginRegimes(15, now_, &job_);
  ASSERT_EQ(job_.regimes_size(), 4);
  EXPECT_THAT(job_.regimes(3).reason(),
              HasSubstr("attempt 2 goes on from clock 15"));
  EXPECT_THAT(InForce(job_), ElementsAre("0 SYNC", "10 ASYNC"));
  // A change at a clock that the attempt before has passed.
  EXPECT_TRUE(Take(To(18, ConsistencySpec::SYNC, 3)));
  EXPECT_THAT(InForce(job_), ElementsAre("0 SYNC", "10 ASYNC", "18 SYNC"));
}

TEST_F(RegimeHistoryTest, AnAttemptThatLosesNothingAddsNothing) {
  Take(To(10, ConsistencySpec::ASYNC, 1));
  BeginRegimes(10, now_, &job_);
  EXPECT_EQ(job_.regimes_size(), 2);
}

TEST_F(RegimeHistoryTest, TheHistoryIsBounded) {
  for (int i = 1; i < 3 * kRegimeChangesMax; ++i) {
    RegimeTransition failed = To(0, ConsistencySpec::ASYNC, i);
    failed.set_error("why");
    Take(failed);
  }
  Take(To(10, ConsistencySpec::ASYNC, 1'000'000));
  EXPECT_EQ(job_.regimes_size(), kRegimeChangesMax);
  EXPECT_THAT(InForce(job_), ElementsAre("0 SYNC", "10 ASYNC"));
}

// A job's own trial is no change by somebody, nor is an attempt that goes back.
TEST_F(RegimeHistoryTest, WhoHasChangedItIsKnown) {
  RegimeTransition tried = To(10, ConsistencySpec::ASYNC, 1);
  tried.set_reason("auto: trying ASYNC for 50 clocks");
  Take(tried);
  job_.set_attempt(2);
  BeginRegimes(5, now_, &job_);
  RegimeTransition failed = To(0, ConsistencySpec::ASYNC, 2);
  failed.set_error("no answer from ps:1 at h:1");
  Take(failed);
  ASSERT_EQ(job_.regimes_size(), 4);
  EXPECT_FALSE(WasChangedByOthers(job_));
  Take(To(20, ConsistencySpec::ASYNC, 3));
  EXPECT_TRUE(WasChangedByOthers(job_));
  // Also where that change is lost.
  job_.set_attempt(3);
  BeginRegimes(5, now_, &job_);
  EXPECT_TRUE(WasChangedByOthers(job_));
}

// A decision that changes nothing is told as the regime that is in force.
TEST_F(RegimeHistoryTest, WhatStaysIsInForceOnce) {
  Take(To(10, ConsistencySpec::ASYNC, 1));
  RegimeTransition stays = To(10, ConsistencySpec::ASYNC, 2);
  stays.set_reason("auto: ASYNC stays; loss/s: SYNC 0.1 against 0.2");
  EXPECT_TRUE(Take(stays));
  EXPECT_EQ(job_.regimes_size(), 3);
  EXPECT_THAT(InForce(job_), ElementsAre("0 SYNC", "10 ASYNC"));
}

// As of a change that was made while the scheduler was away.
TEST_F(RegimeHistoryTest, ACheckpointKnowsItsPast) {
  Take(To(10, ConsistencySpec::ASYNC, 1));
  FoundCheckpoint found;
  found.mutable_checkpoint()->set_clock(40);
  for (const Regime& regime : RegimesInForce(job_)) {
    *found.add_regimes() = regime;
  }
  EXPECT_TRUE(TakeRegimesOf(found, now_, &job_));
  EXPECT_EQ(job_.regimes_size(), 2) << "it says what is known";
  // A change at its cut came behind it.
  Take(To(40, ConsistencySpec::SYNC, 2));
  EXPECT_TRUE(TakeRegimesOf(found, now_, &job_));
  EXPECT_THAT(InForce(job_), ElementsAre("0 SYNC", "10 ASYNC", "40 SYNC"));
  *found.add_regimes() = To(30, ConsistencySpec::SYNC, 3).regime();
  EXPECT_TRUE(TakeRegimesOf(found, now_, &job_));
  EXPECT_THAT(InForce(job_), ElementsAre("0 SYNC", "10 ASYNC", "30 SYNC"));
  EXPECT_THAT(job_.regimes().rbegin()->reason(),
              HasSubstr("the checkpoint at clock 40 says"));
  // One that lacks what the record has: the job had gone back.
  found.mutable_regimes()->DeleteSubrange(1, 2);
  EXPECT_TRUE(TakeRegimesOf(found, now_, &job_));
  EXPECT_THAT(InForce(job_), ElementsAre("0 SYNC"));
  // Not in order, or none that this version has.
  *found.add_regimes() = found.regimes(0);
  EXPECT_FALSE(TakeRegimesOf(found, now_, &job_));
  found.mutable_regimes(1)->set_first_clock(20);
  found.mutable_regimes(1)->set_group_size(4096);
  EXPECT_FALSE(TakeRegimesOf(found, now_, &job_));
  EXPECT_THAT(InForce(job_), ElementsAre("0 SYNC"));
}

TEST_F(RegimeHistoryTest, RulesBehindACheckpointAreNotAppliedAgain) {
  const auto rule = [&](int64_t clock, ConsistencySpec::Mode mode) {
    RegimeRule* const added = job_.mutable_spec()->add_regimes();
    added->mutable_when()->set_clock(clock);
    added->mutable_then()->set_mode(mode);
    return added->then();
  };
  const RegimeChange changes[] = {rule(10, ConsistencySpec::ASYNC),
                                  rule(30, ConsistencySpec::SYNC)};
  rule(50, ConsistencySpec::ASYNC);
  job_.add_workers();
  job_.add_workers();
  FoundCheckpoint found;
  found.mutable_checkpoint()->set_clock(40);
  *found.add_regimes() = RegimesInForce(job_)[0];
  for (const RegimeChange& change : changes) {
    auto next =
        ChangedRegime(job_.spec(), 2, *found.regimes().rbegin(), change);
    ASSERT_TRUE(next.ok()) << next.status();
    next->set_first_clock(11 + 20 * (found.regimes_size() - 1));
    *found.add_regimes() = *std::move(next);
  }
  EXPECT_TRUE(TakeRegimesOf(found, now_, &job_));
  EXPECT_THAT(
      InForce(job_),
      ElementsAre("0 SYNC", "11 ASYNC, learning rate x 0.5", "31 SYNC"));
  EXPECT_EQ(job_.regimes().rbegin()->reason(),
            "rule 2: as the checkpoint at clock 40 says");
  RegimePolicy policy(job_.spec(), 2, job_);
  policy.OnClock(41, 0);
  EXPECT_FALSE(policy.Next().has_value());
  policy.OnClock(50, 0);
  EXPECT_TRUE(policy.Next().has_value());
}

// Trials that the record lacks are the job's own, so it goes on to try.
TEST_F(RegimeHistoryTest, TrialsBehindACheckpointEndNone) {
  job_.mutable_spec()->mutable_auto_regime();
  job_.add_workers();
  job_.add_workers();
  const auto tried = AutoRegimesOf(job_.spec(), 2);
  ASSERT_TRUE(tried.ok()) << tried.status();
  FoundCheckpoint found;
  found.mutable_checkpoint()->set_clock(40);
  *found.add_regimes() = RegimesInForce(job_)[0];
  *found.add_regimes() = tried->back();
  found.mutable_regimes(1)->set_first_clock(11);
  EXPECT_TRUE(TakeRegimesOf(found, now_, &job_));
  EXPECT_EQ(RegimesInForce(job_).size(), 2u);
  EXPECT_EQ(job_.regimes().rbegin()->reason(),
            "auto: as the checkpoint at clock 40 says");
  EXPECT_FALSE(WasChangedByOthers(job_));
  // A regime that is none of these is somebody else's.
  *found.add_regimes() = *found.regimes().rbegin();
  found.mutable_regimes(2)->set_first_clock(31);
  found.mutable_regimes(2)->set_learning_rate_factor(0.125);
  EXPECT_TRUE(TakeRegimesOf(found, now_, &job_));
  EXPECT_EQ(RegimesInForce(job_).size(), 3u);
  EXPECT_TRUE(WasChangedByOthers(job_));
}

}  // namespace
}  // namespace syncline::scheduler
