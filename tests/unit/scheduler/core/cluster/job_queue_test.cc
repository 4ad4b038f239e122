// Goal: first in, first out, and a waiting job says what it waits for. Method:
// examples.

#include "scheduler/core/cluster/job_queue.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(JobQueueTest, KeepsTheOrderOfSubmission) {
  JobQueue queue;
  queue.Push("a");
  queue.Push("b");
  queue.Push("c");
  EXPECT_TRUE(queue.Remove("b"));
  EXPECT_FALSE(queue.Remove("b"));
  EXPECT_THAT(queue.ids(), ElementsAre("a", "c"));
}

TEST(JobQueueTest, AWaitingJobSaysWhatIsMissing) {
  EXPECT_EQ(WaitingText({3, 2}, {2, 2}, {5, 2}),
            "needs 3 workers and 2 ps; free: 2 workers, 2 ps");
  EXPECT_EQ(WaitingText({1, 1}, {1, 0}, {1, 1}),
            "needs 1 worker and 1 ps; free: 1 worker, 0 ps");
}

TEST(JobQueueTest, AJobTooLargeForTheClusterNamesTheField) {
  EXPECT_EQ(WaitingText({9, 1}, {2, 2}, {3, 2}),
            "needs 9 workers and 1 ps; free: 2 workers, 2 ps; more than this "
            "cluster has (3 workers, 2 ps): start more daemons, or submit with "
            "smaller resources.workers; jobs behind it need not wait for that");
  EXPECT_THAT(WaitingText({1, 9}, {2, 2}, {3, 2}),
              HasSubstr("smaller resources.ps;"));
}

TEST(JobQueueTest, AJobForWhichGpusAreMissingSaysSo) {
  EXPECT_EQ(WaitingText({2, 1, 2}, {2, 1, 1}, {3, 1, 1}),
            "needs 2 workers with a GPU and 1 ps; free: 2 workers (1 with a "
            "GPU), 1 ps; more than this cluster has (3 workers (1 with a GPU), "
            "1 ps): start more daemons on machines with a GPU, or submit with "
            "smaller resources.workers or without resources.device: CUDA; jobs "
            "behind it need not wait for that");
}

TEST(JobQueueTest, CapacityCoversAllKinds) {
  EXPECT_TRUE((Capacity{2, 2, 1}.Covers({2, 2, 1})));
  EXPECT_FALSE((Capacity{2, 2, 1}.Covers({2, 2, 2})));
  EXPECT_TRUE((Capacity{2, 2}.Covers({2, 2})));
  EXPECT_FALSE((Capacity{2, 2}.Covers({3, 1})));
  EXPECT_FALSE((Capacity{2, 2}.Covers({1, 3})));
}

}  // namespace
}  // namespace syncline::scheduler
