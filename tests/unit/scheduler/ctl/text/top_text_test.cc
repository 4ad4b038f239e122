// Goal: one look shows what runs, how fast, and for whom the others wait.
// Method: two moments of a cluster, text and ranks compared.

#include "scheduler/ctl/text/top_text.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::ctl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;

// Workers of rank 0, 1, ..: seconds of work and of waiting, and clocks.
struct Worker {
  double works = 0;
  double waits = 0;
  int64_t clock = 0;
};
JobProgress ProgressOf(const std::vector<Worker>& workers) {
  JobProgress progress;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const Worker& worker : workers) {
    WorkerProgress* const added = progress.add_workers();
    added->set_rank(static_cast<uint32_t>(progress.workers_size() - 1));
    added->set_compute_seconds(worker.works);
    added->set_wait_seconds(worker.waits);
    added->set_clock(worker.clock);
    least = std::min(least, worker.clock);
  }
  progress.set_clock(least);
  return progress;
}

TEST(WaitSharesTest, AreOfTheTimeSinceTheMomentBefore) {
  const JobProgress before = ProgressOf({{10, 0, 5}, {2, 8, 5}});
  const JobProgress now = ProgressOf({{11, 3, 6}, {2, 8, 5}});
  EXPECT_THAT(WaitShares(now, before),
              ElementsAre(Optional(0.75), std::nullopt));
  EXPECT_THAT(WaitShares(before, JobProgress()),
              ElementsAre(Optional(0.0), Optional(0.8)));
  // The job began anew meanwhile.
  EXPECT_THAT(WaitShares(ProgressOf({{1, 1, 1}}), ProgressOf({{0, 1.5, 9}})),
              ElementsAre(std::nullopt));
}

TEST(StragglerTest, WaitsLeastWhileTheOthersWait) {
  EXPECT_EQ(
      StragglerOf(ProgressOf({{5, 5, 9}, {9, 1, 9}, {6, 4, 9}}), JobProgress()),
      1u);
  EXPECT_EQ(StragglerOf(ProgressOf({{9, 1, 9}, {9, 1, 9}}), JobProgress()),
            std::nullopt);
  EXPECT_EQ(StragglerOf(ProgressOf({{5, 5, 9}, {6, 4, 9}}), JobProgress()),
            std::nullopt)
      << "both wait, for the ps";
  EXPECT_EQ(StragglerOf(ProgressOf({{9, 0, 9}}), JobProgress()), std::nullopt);
}

TEST(StragglerTest, IsTheLastWhereNothingComesForward) {
  const JobProgress before = ProgressOf({{5, 5, 8}, {9, 1, 7}});
  const JobProgress now = ProgressOf({{5, 5, 8}, {9, 1, 7}});
  EXPECT_EQ(StragglerOf(now, before), 1u);
  const JobProgress level = ProgressOf({{5, 5, 8}, {9, 1, 8}});
  EXPECT_EQ(StragglerOf(level, level), std::nullopt) << "none is last";
}

// Workers that wait a fifth of their time for the slowest of those that are
// needed, and one that was left behind.
JobStatus JobWithBackups(std::vector<int64_t> clocks) {
  JobStatus job;
  job.set_state(RUNNING);
  job.mutable_spec()->mutable_consistency()->set_mode(
      ConsistencySpec::SYNC_WITH_BACKUPS);
  job.mutable_spec()->mutable_consistency()->set_needed(2);
  for (int rank = 0; rank < 3; ++rank) job.add_workers();
  job.mutable_spec()->mutable_data()->mutable_test()->mutable_digits();
  *job.mutable_progress() =
      ProgressOf({{5, 5, clocks[0]}, {5, 5, clocks[1]}, {9, 0, clocks[2]}});
  for (auto& worker : *job.mutable_progress()->mutable_workers()) {
    worker.set_clocks_per_epoch(50);
  }
  return job;
}

TEST(StragglerTest, WhereStepsEndWithoutItNobodyWaitsForASlowWorker) {
  JobStatus job = JobWithBackups({120, 121, 30});
  const JobProgress& now = job.progress();
  EXPECT_EQ(StragglerOf(job, now, JobProgress()), std::nullopt);
  EXPECT_EQ(StragglerOf(job, now, now), std::nullopt) << "a long step";
  job.mutable_spec()->mutable_consistency()->set_mode(ConsistencySpec::SYNC);
  EXPECT_EQ(StragglerOf(job, now, JobProgress()), 2u);
}

TEST(StragglerTest, TheChiefHoldsUpTheEndOfAnEpoch) {
  // The ranks 1 and 2 are at the end of the third one.
  JobStatus job = JobWithBackups({120, 150, 150});
  EXPECT_EQ(StragglerOf(job, job.progress(), JobProgress()), 0u);
  EXPECT_TRUE(ChiefHoldsUp(job));
  EXPECT_FALSE(ChiefHoldsUp(JobWithBackups({120, 149, 149})));
  EXPECT_FALSE(ChiefHoldsUp(JobWithBackups({150, 150, 120})));
  JobStatus other = job;
  other.mutable_spec()->mutable_data()->clear_test();
  EXPECT_FALSE(ChiefHoldsUp(other)) << "it evaluates nothing";
  other = job;
  other.mutable_evaluator();
  EXPECT_FALSE(ChiefHoldsUp(other)) << "the evaluator does";
  job.set_state(FAILED);
  EXPECT_FALSE(ChiefHoldsUp(job));
}

TEST(TopTextTest, ShowsJobsWorkersAndMembers) {
  TopSnapshot now;
  now.cluster.set_scheduler_address("s:7070");
  auto* const entry = now.cluster.add_members();
  entry->mutable_member()->mutable_task()->set_type(PS);
  entry->mutable_member()->set_address("p:1");
  JobStatus running;
  running.set_job_id("j-0007");
  running.mutable_spec()->set_name("a-name-that-is-too-long-for-it");
  running.set_state(RUNNING);
  *running.mutable_progress() = ProgressOf({{5, 5, 130}, {9, 1, 129}});
  running.mutable_progress()->set_clocks_total(1000);
  running.mutable_progress()->set_loss(0.25);
  running.mutable_progress()->set_samples_per_second(24310.4);
  now.jobs.push_back(running);
  JobStatus queued;
  queued.set_job_id("j-0008");
  queued.set_state(QUEUED);
  queued.set_waiting_for("2 workers\nmore");
  now.jobs.push_back(queued);
  const std::string text = TopText(now, TopSnapshot());
  EXPECT_THAT(text, AllOf(HasSubstr("members 1 (1 free)  running 1"),
                          HasSubstr("j-0007     a-name-that-is-too-l running "
                                    "      129/1000       0.25      24310\n"),
                          HasSubstr("j-0008"), HasSubstr("2 workers\n"),
                          Not(HasSubstr("more")), HasSubstr("p:1")));
  EXPECT_THAT(text, HasSubstr("waits 50%\n"));
  EXPECT_THAT(text, HasSubstr("waits 10%  <- the others wait for it\n"));
}

}  // namespace
}  // namespace syncline::ctl
