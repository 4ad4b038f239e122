// Goal: people read how much of a job had no effect, and cannot overlook that
// none of it had. Method: statuses with such counts, text compared.

#include "common/job/skipped_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

JobStatus Job(JobState state, int64_t clock, uint64_t skipped) {
  JobStatus job;
  job.set_state(state);
  job.mutable_progress()->set_clock(clock);
  job.mutable_progress()->set_skipped_clocks(skipped);
  return job;
}

TEST(SkippedTextTest, NothingSkippedIsNothingSaid) {
  EXPECT_EQ(SkippedText(Job(SUCCEEDED, 500, 0)), "");
  EXPECT_EQ(SkippedText(JobStatus()), "");
  EXPECT_FALSE(IsHardlyTrained(Job(SUCCEEDED, 0, 0)));
}

TEST(SkippedTextTest, CountsSteps) {
  EXPECT_EQ(SkippedText(Job(RUNNING, 500, 12)),
            "12 of 500 steps were skipped: their gradients were not finite");
  EXPECT_EQ(SkippedText(Job(SUCCEEDED, 500, 1)),
            "1 of 500 steps was skipped: its gradients were not finite");
}

TEST(SkippedTextTest, ALateClockIsNoTotal) {
  EXPECT_EQ(SkippedText(Job(RUNNING, 10, 12)),
            "12 steps were skipped: their gradients were not finite");
  EXPECT_FALSE(IsHardlyTrained(Job(RUNNING, 10, 12)));
  EXPECT_FALSE(IsHardlyTrained(Job(CANCELLED, 10, 10)));
}

TEST(SkippedTextTest, SaysThatNothingWasTrained) {
  EXPECT_TRUE(IsHardlyTrained(Job(SUCCEEDED, 500, 500)));
  EXPECT_EQ(SkippedText(Job(SUCCEEDED, 500, 500)),
            "all 500 steps were skipped: their gradients were not finite. "
            "Nothing was trained: the parameters are the initial ones");
  EXPECT_THAT(SkippedText(Job(SUCCEEDED, 1, 1)),
              StartsWith("the only step was skipped: its gradients"));
}

TEST(SkippedTextTest, WorkersThatDoNotWaitSkipForThemselves) {
  JobStatus job = Job(SUCCEEDED, 5, 6);
  job.mutable_spec()->mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  job.mutable_progress()->add_workers()->set_clock(5);
  job.mutable_progress()->add_workers()->set_clock(7);
  EXPECT_EQ(SkippedText(job),
            "6 of 12 pushes of workers were skipped: their gradients were not "
            "finite");
  EXPECT_FALSE(IsHardlyTrained(job));
  job.mutable_progress()->set_skipped_clocks(12);
  EXPECT_TRUE(IsHardlyTrained(job));
  EXPECT_THAT(SkippedText(job), HasSubstr("all 12 pushes of workers were"));
}

TEST(SkippedTextTest, ALeasedClockIsOnePush) {
  JobStatus job = Job(SUCCEEDED, 30, 30);
  job.mutable_spec()->mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  job.mutable_spec()->mutable_data()->set_sharing(DataSpec::LEASED);
  for (int rank = 0; rank < 2; ++rank) {
    job.mutable_progress()->add_workers()->set_clock(30);
  }
  EXPECT_TRUE(IsHardlyTrained(job));
  EXPECT_THAT(SkippedText(job), HasSubstr("all 30 pushes of workers were"));
  job.mutable_progress()->set_skipped_clocks(3);
  EXPECT_THAT(SkippedText(job), StartsWith("3 of 30 pushes of workers were"));
}

TEST(SkippedTextTest, AGroupPushesOnce) {
  JobStatus job = Job(SUCCEEDED, 6, 3);
  job.mutable_spec()->mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  job.mutable_spec()->mutable_groups()->set_size(2);
  for (int rank = 0; rank < 4; ++rank) {
    job.add_workers()->mutable_member()->set_hostname("h");
    job.mutable_progress()->add_workers()->set_clock(6);
  }
  EXPECT_THAT(SkippedText(job), StartsWith("3 of 12 pushes of groups were"));
  job.mutable_progress()->set_skipped_clocks(12);
  EXPECT_TRUE(IsHardlyTrained(job));
}

TEST(SkippedTextTest, CountsWhatWasDropped) {
  JobStatus job = Job(SUCCEEDED, 500, 0);
  job.mutable_progress()->set_dropped_blocks(3);
  EXPECT_EQ(SkippedText(job),
            "3 blocks of gradients or rows of tables were dropped: they were "
            "not finite");
  job.mutable_progress()->set_dropped_blocks(1);
  job.mutable_progress()->set_skipped_clocks(2);
  EXPECT_EQ(SkippedText(job),
            "2 of 500 steps were skipped: their gradients were not finite; 1 "
            "block of gradients or row of a table was dropped: it was not "
            "finite");
}

// A part of the model that is never finite is dropped in each step.
TEST(SkippedTextTest, WarnsWhereEachStepDropped) {
  JobStatus job = Job(SUCCEEDED, 500, 0);
  job.mutable_progress()->set_dropped_blocks(499);
  EXPECT_FALSE(IsHardlyTrained(job));
  job.mutable_progress()->set_dropped_blocks(500);
  EXPECT_TRUE(IsHardlyTrained(job));
  EXPECT_EQ(SkippedText(job),
            "500 blocks of gradients or rows of tables were dropped: they were "
            "not finite. That is as many as the job made steps, or more: a "
            "part of the model may not be trained at all");
  job.set_state(RUNNING);
  EXPECT_FALSE(IsHardlyTrained(job));
}

}  // namespace
}  // namespace syncline
