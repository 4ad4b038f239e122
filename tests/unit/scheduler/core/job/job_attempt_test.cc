// Attempts of a job that a policy lets try again. The simulation of the cluster
// has what follows for its members.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/exit_codes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/core/job/job.h"
#include "tests/unit/scheduler/core/job/job_fixture.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The second attempt begins at clock 20; there is no third one.
std::optional<int64_t> OnceFromClock20(const JobStatus& job, absl::string_view,
                                       int exit_code) {
  if (job.attempt() > 1 || exit_code != kExitRetryable) return std::nullopt;
  return 20;
}

class JobAttemptTest : public JobTest {
 protected:
  JobAttemptTest() : JobTest(OnceFromClock20) {}

  void Evaluate(uint32_t epoch, int64_t clock) {
    WorkerReport report;
    report.mutable_evaluation()->set_epoch(epoch);
    report.mutable_evaluation()->set_clock(clock);
    job_.OnReport(kChief, report, now_, &actions_);
  }
  JobAssignment Assigned() const {
    JobAssignment assignment;
    for (const ClusterAction& action : actions_) {
      auto* send = std::get_if<SendCommand>(&action);
      if (send != nullptr && send->message.has_prepare()) {
        assignment = send->message.prepare().assignment();
      }
    }
    return assignment;
  }
  // The first attempt fails, and its members leave.
  void FailOnce() {
    StartAndRun();
    Gone(kWorker, "stream closed");
    Gone(kChief);
    Gone(kPs);
  }
};

TEST_F(JobAttemptTest, ALostMemberEndsTheAttemptAndNotTheJob) {
  StartAndRun();
  EXPECT_EQ(Assigned().attempt(), 1u);
  EXPECT_EQ(Assigned().start_clock(), 0);
  Gone(kWorker, "stream closed");
  EXPECT_EQ(state(), QUEUED);
  EXPECT_FALSE(job_.TakeFailure());
  EXPECT_THAT(reason(), AllOf(HasSubstr("attempt 1 has failed: "),
                              HasSubstr("was lost: stream closed"),
                              HasSubstr("begins at clock 20")));
  EXPECT_TRUE(job_.stopping());  // its members are told to stop
  EXPECT_THAT(job_.StopReason(), HasSubstr("attempt 1 has failed"));
  EXPECT_THAT(job_.status().waiting_for(), HasSubstr("members of attempt 1"));
  Gone(kChief);
  EXPECT_FALSE(job_.IsWaiting());
  Gone(kPs);
  EXPECT_TRUE(job_.IsWaiting());
  EXPECT_FALSE(job_.stopping());
  EXPECT_TRUE(job_.Participants().empty());
}

TEST_F(JobAttemptTest, TheNextOneHasItsNumberSecretAndClock) {
  FailOnce();
  const JobPass first = job_.pass();
  job_.Start({At(kChief, CHIEF, 0)}, {At(kPs, PS, 7)}, std::nullopt, "other",
             now_, &actions_);
  EXPECT_EQ(state(), PREPARING);
  EXPECT_THAT(reason(), HasSubstr(", attempt 2 from clock 20"));
  const JobAssignment assignment = Assigned();
  EXPECT_EQ(assignment.attempt(), 2u);
  EXPECT_EQ(assignment.job_secret(), "other");
  EXPECT_EQ(assignment.start_clock(), 20);
  EXPECT_EQ(assignment.workers_size(), 1);
  EXPECT_EQ(job_.status().workers_size(), 1);
  EXPECT_NE(first.secret, job_.pass().secret);
  EXPECT_TRUE(job_.IsOfAttempt(2));
  EXPECT_FALSE(job_.IsOfAttempt(1));
  EXPECT_FALSE(job_.IsOfAttempt(0));
}

TEST_F(JobAttemptTest, TheSecretIsInNoStatus) {
  StartAndRun();
  EXPECT_EQ(Assigned().job_secret(), "secret");
  EXPECT_EQ(job_.status().SerializeAsString().find("secret"),
            std::string::npos);
  EXPECT_EQ(job_.Status(now_).SerializeAsString().find("secret"),
            std::string::npos);
}

TEST_F(JobAttemptTest, WhatCameAfterTheClockIsForgotten) {
  StartAndRun();
  Evaluate(1, 10);
  Evaluate(2, 20);
  Evaluate(3, 30);
  Done(kWorker);
  ASSERT_EQ(job_.status().done_ranks_size(), 1);
  Gone(kPs, "silent");
  EXPECT_EQ(job_.status().done_ranks_size(), 0);
  ASSERT_EQ(job_.status().evaluations_size(), 2);
  EXPECT_EQ(job_.status().evaluations(1).clock(), 20);
  // Late words of its members.
  Evaluate(4, 40);
  Report(kChief, 40);
  Done(kChief, kUnavailable, "the ps does not answer");
  EXPECT_EQ(state(), QUEUED);
  EXPECT_EQ(job_.status().evaluations_size(), 2);
}

TEST_F(JobAttemptTest, ThereIsAnEndToAttempts) {
  FailOnce();
  Start();
  for (const SessionId session : {kChief, kWorker, kPs}) Prepare(session);
  EXPECT_EQ(state(), RUNNING);
  Gone(kWorker, "stream closed");
  EXPECT_EQ(state(), FAILED);
  EXPECT_EQ(job_.status().exit_code(), kExitRetryable);
  EXPECT_TRUE(job_.TakeFailure());
}

TEST_F(JobAttemptTest, APermanentFaultIsNotTriedAgain) {
  StartAndRun();
  Done(kWorker, /*code=*/3, "loss is NaN");
  EXPECT_EQ(state(), FAILED);
}

TEST_F(JobAttemptTest, AnAbandonedOneCanBeCancelled) {
  StartAndRun();
  Gone(kWorker, "stream closed");
  job_.Cancel("", now_, &actions_);
  EXPECT_EQ(state(), CANCELLED);
  EXPECT_TRUE(job_.stopping());
  Gone(kChief);
  Gone(kPs);
  EXPECT_EQ(state(), CANCELLED);
  EXPECT_FALSE(job_.IsWaiting());
}

TEST_F(JobAttemptTest, TheLimitOfTimeCountsFromTheFirst) {
  StartAndRun();
  Tick(absl::Seconds(60));
  Gone(kWorker, "stream closed");
  Gone(kChief);
  Gone(kPs);
  Start();
  Tick(absl::Seconds(41));
  EXPECT_EQ(state(), FAILED);
  EXPECT_THAT(reason(), HasSubstr("limits.max_seconds"));
}

TEST_F(JobAttemptTest, ARestartedSchedulerGoesOnWithTheNext) {
  StartAndRun();
  StoredJob stored = Stored();
  stored.status = job_.status();
  Job restarted(stored, {.prepare_timeout = absl::Seconds(60),
                         .grace = absl::Seconds(2),
                         .retry = OnceFromClock20});
  restarted.OnRestart(now_, &actions_);
  EXPECT_TRUE(restarted.IsWaiting());
  stored.status = restarted.status();
  // The policy, which would name another clock now, is not asked again.
  Job again(stored, {.prepare_timeout = absl::Seconds(60),
                     .grace = absl::Seconds(2),
                     .retry = [](const JobStatus&, absl::string_view,
                                 int) -> std::optional<int64_t> {
                       ADD_FAILURE() << "asked for a clock that is known";
                       return 10;
                     }});
  again.Start({At(kChief, CHIEF, 0)}, {At(kPs, PS, 7)}, std::nullopt, "third",
              now_, &actions_);
  EXPECT_EQ(Assigned().attempt(), 2u);
  EXPECT_EQ(Assigned().start_clock(), 20);
}

}  // namespace
}  // namespace syncline::scheduler
