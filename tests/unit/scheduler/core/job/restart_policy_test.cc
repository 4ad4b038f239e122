// Goal: a job is restarted where that makes sense, as often as it asks for, and
// no sooner. Method: records with some restarts behind them, at invented times.

#include "scheduler/core/job/restart_policy.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/exit_codes.h"
#include "common/job/stop_reasons.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/core/describe.h"

namespace syncline::scheduler {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

const absl::Time kStart = absl::UnixEpoch() + absl::Hours(1);

std::string Loss(int clock) {
  return absl::StrCat(
      "worker 1 at h:1 (incarnation 0x1) was lost: stream closed; last clock ",
      clock);
}

class RestartPolicyTest : public ::testing::Test {
 protected:
  RestartPolicyTest() {
    job_.mutable_spec()->mutable_restart();
    Add(QUEUED, kStart, "");
  }
  void Add(JobState state, absl::Time time, const std::string& reason) {
    job_.set_state(state);
    JobTransition* const transition = job_.add_transitions();
    transition->set_state(state);
    *transition->mutable_time() = ToTimestamp(time);
    transition->set_reason(reason);
  }
  // The job runs, and is restarted at `time`.
  void AddRestart(absl::Time time, int clock) {
    Add(PREPARING, time, "");
    Add(RUNNING, time, "");
    Add(QUEUED, time,
        absl::StrCat(Loss(clock),
                     "; attempt 2 goes on from the checkpoint at "
                     "clock 4 (restart 1 of at most 3)"));
  }
  RestartSpec* spec() { return job_.mutable_spec()->mutable_restart(); }
  RestartDecision Decide(absl::Time now, int clock = 100,
                         int exit_code = kExitRetryable) const {
    return DecideRestart(job_, Loss(clock), exit_code, now);
  }

  JobStatus job_;
};

// The attempt has begun at the clock at which the one before was lost, because
// its chief had saved that.
TEST_F(RestartPolicyTest, AMemberMayBeLostTwiceBeforeAStep) {
  AddRestart(kStart, /*clock=*/4);
  EXPECT_TRUE(Decide(kStart, /*clock=*/4).restarts);
  AddRestart(kStart, /*clock=*/4);
  const RestartDecision third = Decide(kStart, /*clock=*/4);
  EXPECT_FALSE(third.restarts);
  EXPECT_TRUE(third.repeated);
  // Behind a step once is enough.
  AddRestart(kStart, /*clock=*/9);
  EXPECT_TRUE(Decide(kStart, /*clock=*/9).repeated);
}

// Neither the limit nor the backoff, nor what the last failure is compared
// with.
TEST_F(RestartPolicyTest, APlannedMoveIsNoRestart) {
  spec()->set_max(1);
  for (int i = 0; i < 5; ++i) {
    Add(PREPARING, kStart, "");
    Add(RUNNING, kStart, "");
    Add(QUEUED, kStart + absl::Seconds(i),
        absl::StrCat(kPlannedMove, "ps 1 is drained; attempt 2 goes on"));
  }
  EXPECT_EQ(RestartTime(job_), absl::InfinitePast());
  EXPECT_TRUE(Decide(kStart + absl::Seconds(9)).restarts);
  AddRestart(kStart + absl::Seconds(10), 100);
  Add(QUEUED, kStart + absl::Seconds(20),
      absl::StrCat(kPlannedMove, "ps 1 is drained; attempt 2 goes on"));
  EXPECT_TRUE(Decide(kStart + absl::Seconds(30), 100).repeated);
  EXPECT_THAT(Decide(kStart + absl::Seconds(30), 200).text,
              HasSubstr("restart.max allows 1"));
}

// The job did not fail: neither does it use up a restart, nor hide that the
// same failure comes again.
TEST_F(RestartPolicyTest, ADamagedCheckpointIsNoRestart) {
  spec()->set_max(2);
  AddRestart(kStart, 100);
  Add(PREPARING, kStart, "");
  Add(QUEUED, kStart,
      absl::StrCat(DamageText("/c/40", "torn"), "; attempt 3 goes on"));
  EXPECT_EQ(Decide(kStart, 200).text, "restart 2 of at most 2 within 1h");
  EXPECT_TRUE(Decide(kStart, 100).repeated);
}

TEST_F(RestartPolicyTest, AJobThatDoesNotAskForItIsNotRestarted) {
  job_.mutable_spec()->clear_restart();
  EXPECT_FALSE(Decide(kStart).restarts);
  EXPECT_THAT(Decide(kStart).text, IsEmpty());
}

TEST_F(RestartPolicyTest, AFailureOfTheJobsOwnIsNotTriedAgain) {
  EXPECT_FALSE(Decide(kStart, 100, kExitFailed).restarts);
  EXPECT_TRUE(Decide(kStart).restarts);
}

TEST_F(RestartPolicyTest, AsOftenAsTheWindowAllows) {
  spec()->set_max(2);
  spec()->set_window_seconds(100);
  EXPECT_EQ(Decide(kStart).text, "restart 1 of at most 2 within 1m40s");
  AddRestart(kStart, 10);
  AddRestart(kStart + absl::Seconds(10), 20);
  const absl::Time full = kStart + absl::Seconds(99);
  EXPECT_FALSE(Decide(full).restarts);
  EXPECT_FALSE(Decide(full).repeated);
  EXPECT_THAT(Decide(full).text, HasSubstr("restart.max allows 2 within"));
  // The first of them has left the window.
  EXPECT_EQ(Decide(kStart + absl::Seconds(100)).text,
            "restart 2 of at most 2 within 1m40s");
}

TEST_F(RestartPolicyTest, DefaultsAreThoseOfTheSpec) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Decide(kStart).restarts);
    AddRestart(kStart, i);
  }
  EXPECT_FALSE(Decide(kStart).restarts);
  EXPECT_TRUE(Decide(kStart + absl::Hours(1)).restarts);
}

TEST_F(RestartPolicyTest, TheSameFailureAtTheSameClockIsNotTriedAgain) {
  AddRestart(kStart, 812);
  EXPECT_TRUE(Decide(kStart, 813).restarts);
  const RestartDecision same = Decide(kStart, 812);
  EXPECT_FALSE(same.restarts);
  EXPECT_TRUE(same.repeated);
  EXPECT_THAT(same.text, HasSubstr("in the same way at the same clock"));
}

TEST_F(RestartPolicyTest, TheBackoffDoublesWithinTheWindow) {
  EXPECT_EQ(RestartTime(job_), absl::InfinitePast());
  spec()->set_window_seconds(1000);
  AddRestart(kStart, 1);
  EXPECT_EQ(RestartTime(job_), kStart + absl::Seconds(1));
  AddRestart(kStart, 2);
  EXPECT_EQ(RestartBackoff(job_), absl::Seconds(2));
  for (int i = 3; i < 20; ++i) AddRestart(kStart, i);
  EXPECT_EQ(RestartBackoff(job_), absl::Minutes(5));
  // All of these have left the window.
  AddRestart(kStart + absl::Seconds(1000), 30);
  EXPECT_EQ(RestartBackoff(job_), absl::Seconds(1));
  // A pass through the queue that is no restart counts for nothing.
  Add(PREPARING, kStart + absl::Seconds(2000), "");
  EXPECT_EQ(RestartBackoff(job_), absl::Seconds(1));
}

TEST_F(RestartPolicyTest, TheBackoffIsTheJobs) {
  spec()->set_backoff_seconds(0);
  AddRestart(kStart, 1);
  AddRestart(kStart, 2);
  EXPECT_EQ(RestartTime(job_), kStart);
  spec()->set_backoff_seconds(600);
  EXPECT_EQ(RestartBackoff(job_), absl::Minutes(10));
}

}  // namespace
}  // namespace syncline::scheduler
