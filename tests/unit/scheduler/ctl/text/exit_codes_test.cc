// Goal: exit codes mean what --help says. Method: a table.

#include "scheduler/ctl/text/exit_codes.h"

#include "gtest/gtest.h"

namespace syncline::ctl {
namespace {

TEST(ExitCodeOfTest, CallsThatFailed) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("")), 1);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("")), 1);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("")), 3);
  EXPECT_EQ(ExitCodeOf(absl::DeadlineExceededError("")), 3);
  EXPECT_EQ(ExitCodeOf(absl::CancelledError("")), 130);
  EXPECT_EQ(ExitCodeOf(absl::ResourceExhaustedError("")), 138);
}

JobStatus Job(JobState state, int exit_code) {
  JobStatus job;
  job.set_state(state);
  job.set_exit_code(exit_code);
  return job;
}

TEST(ExitCodeOfTest, Jobs) {
  EXPECT_EQ(ExitCodeOf(Job(SUCCEEDED, 0)), 0);
  EXPECT_EQ(ExitCodeOf(Job(FAILED, 1)), 1);
  EXPECT_EQ(ExitCodeOf(Job(FAILED, 138)), 138);
  EXPECT_EQ(ExitCodeOf(Job(FAILED, 0)), 1) << "a failure is never success";
  EXPECT_EQ(ExitCodeOf(Job(CANCELLED, 1)), 130);
}

TEST(HasEndedTest, OnlyTheLastThree) {
  for (JobState state : {QUEUED, PREPARING, RUNNING}) {
    EXPECT_FALSE(HasEnded(state)) << JobState_Name(state);
  }
  for (JobState state : {SUCCEEDED, FAILED, CANCELLED}) {
    EXPECT_TRUE(HasEnded(state)) << JobState_Name(state);
  }
}

}  // namespace
}  // namespace syncline::ctl
