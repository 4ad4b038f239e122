#include "scheduler/core/job/job_blame.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

PsReport Report(uint64_t clocks) {
  PsReport report;
  report.add_blame()->set_rank(0);
  Blame* const second = report.add_blame();
  second->set_rank(1);
  second->set_clocks(clocks);
  return report;
}

TEST(JobBlameTest, TheReportOfShard0Counts) {
  JobProgress progress;
  EXPECT_FALSE(TakeBlame(PsReport(), WorkerGroups(), &progress))
      << "another ps";
  EXPECT_TRUE(TakeBlame(Report(3), WorkerGroups(), &progress));
  EXPECT_FALSE(TakeBlame(Report(3), WorkerGroups(), &progress))
      << "nothing is new";
  EXPECT_FALSE(TakeBlame(PsReport(), WorkerGroups(), &progress));
  EXPECT_TRUE(TakeBlame(Report(4), WorkerGroups(), &progress));
  ASSERT_EQ(progress.blame_size(), 2);
  EXPECT_EQ(progress.blame(1).clocks(), 4u);
}

// The ps know a group by its number, people by the rank of its leader.
TEST(JobBlameTest, TheBlameOfAGroupIsItsLeaders) {
  GroupSpec spec;
  spec.set_size(2);
  const auto groups = WorkerGroups::Of(spec, std::vector<std::string>(4));
  ASSERT_TRUE(groups.ok()) << groups.status();
  JobProgress progress;
  EXPECT_TRUE(TakeBlame(Report(3), *groups, &progress));
  EXPECT_FALSE(TakeBlame(Report(3), *groups, &progress));
  ASSERT_EQ(progress.blame_size(), 2);
  EXPECT_EQ(progress.blame(0).rank(), 0u);
  EXPECT_EQ(progress.blame(1).rank(), 2u);
  EXPECT_EQ(progress.blame(1).clocks(), 3u);
}

TEST(JobBlameTest, TheJobIsWhereItsForemostWorkerIs) {
  JobProgress progress;
  progress.set_clock(5);
  progress.set_clocks_total(100);
  progress.set_epoch(1);
  progress.set_epochs_total(10);
  for (const int64_t clock : {25, 5}) {
    WorkerProgress* const worker = progress.add_workers();
    worker->set_clock(clock);
    worker->set_clocks_per_epoch(10);
  }
  FollowTheForemost(/*start_clock=*/0, /*ends_early=*/false, absl::Seconds(50),
                    &progress);
  EXPECT_EQ(progress.clock(), 25);
  EXPECT_EQ(progress.epoch(), 3u);
  EXPECT_DOUBLE_EQ(progress.seconds_left(), 150);
}

TEST(JobBlameTest, AtTheEndTheEpochIsTheLast) {
  JobProgress progress;
  progress.set_clocks_total(20);
  progress.set_epochs_total(2);
  WorkerProgress* const worker = progress.add_workers();
  worker->set_clock(20);
  worker->set_clocks_per_epoch(10);
  FollowTheForemost(0, /*ends_early=*/false, absl::Seconds(50), &progress);
  EXPECT_EQ(progress.epoch(), 2u);
  EXPECT_EQ(progress.seconds_left(), 0);
}

TEST(JobBlameTest, AfterAnEarlyEndTheEpochIsTheLastThatWasBegun) {
  JobProgress progress;
  progress.set_clocks_total(100);
  progress.set_epochs_total(10);
  WorkerProgress* const worker = progress.add_workers();
  worker->set_clock(20);
  worker->set_clocks_per_epoch(10);
  FollowTheForemost(0, /*ends_early=*/true, absl::Seconds(50), &progress);
  EXPECT_EQ(progress.epoch(), 2u);
}

}  // namespace
}  // namespace syncline::scheduler
