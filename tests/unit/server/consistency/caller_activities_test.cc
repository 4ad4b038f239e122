// Goal: the newest report counts for as long as the worker has not pushed.
// Method: reports, repeats and pushes, and the text that is shown.

#include "server/consistency/caller_activities.h"

#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

TEST(CallerActivitiesTest, OnlyAReportThatSaysMoreCounts) {
  CallerActivities activities(2);
  EXPECT_EQ(activities.Text(1, nullptr), "");
  EXPECT_TRUE(activities.OnReport(1, {0, "evaluating", 3, 7}, nullptr));
  EXPECT_FALSE(activities.OnReport(1, {0, "evaluating", 3, 7}, nullptr));
  EXPECT_FALSE(activities.OnReport(1, {0, "evaluating", 2, 7}, nullptr));
  EXPECT_EQ(activities.Text(1, nullptr), "evaluating, 3 of 7");
  EXPECT_TRUE(activities.OnReport(1, {1, "evaluating", 0, 7}, nullptr));
  EXPECT_EQ(activities.Text(1, nullptr), "evaluating, 0 of 7");
  EXPECT_EQ(activities.Text(0, nullptr), "");
}

TEST(CallerActivitiesTest, APushEndsAWorkersActivity) {
  CallerActivities activities(1);
  PushLedger worker(1);
  EXPECT_TRUE(activities.OnReport(0, {0, "reading", 1, 2}, &worker));
  EXPECT_EQ(activities.Text(0, &worker), "reading, 1 of 2");
  PushFacts push;
  push.blocks_in_clock = 1;
  push.blocks = {0};
  worker.Open(push);
  EXPECT_EQ(activities.Text(0, &worker), "") << "it pushes";
  worker.Receive(0);
  worker.Close();
  EXPECT_EQ(activities.Text(0, &worker), "") << "of a clock that is closed";
  EXPECT_FALSE(activities.OnReport(0, {0, "reading", 2, 2}, &worker));
  EXPECT_TRUE(activities.OnReport(0, {1, "reading", 1, 2}, &worker));
  EXPECT_EQ(activities.Text(0, &worker), "reading, 1 of 2");
}

// With leased data a worker may be at a cut between two of its clocks.
TEST(CallerActivitiesTest, AClockThatWasClosedWithoutAPushIsNotOver) {
  CallerActivities activities(1);
  PushLedger worker(1);
  worker.ImportAhead(3, 6, /*finished=*/false);
  EXPECT_FALSE(activities.OnReport(0, {2, "evaluating", 1, 7}, &worker));
  for (const int64_t clock : {3, 5, 6}) {
    EXPECT_TRUE(activities.OnReport(0, {clock, "evaluating", 1, 7}, &worker));
    EXPECT_EQ(activities.Text(0, &worker), "evaluating, 1 of 7");
  }
  EXPECT_TRUE(activities.OnReport(0, {7, "evaluating", 1, 7}, &worker));
  EXPECT_EQ(activities.Text(0, &worker), "") << "of a later clock";
}

}  // namespace
}  // namespace syncline::ps
