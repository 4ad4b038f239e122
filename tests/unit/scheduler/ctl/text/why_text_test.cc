// Goal: a person learns from one command what holds a job up. Method: a status
// for each cause.

#include "scheduler/ctl/text/why_text.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/ctl/text/top_text.h"

namespace syncline::ctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const absl::Time kNow = absl::UnixEpoch() + absl::Hours(1);

class WhyTextTest : public ::testing::Test {
 protected:
  WhyTextTest() {
    job_.set_job_id("j-0007");
    job_.mutable_spec()->set_name("ctr");
    Enter(QUEUED, "", 60);
  }
  void Enter(JobState state, const std::string& reason, int seconds_ago) {
    job_.set_state(state);
    JobTransition* const transition = job_.add_transitions();
    transition->set_state(state);
    transition->set_reason(reason);
    transition->mutable_time()->set_seconds(3600 - seconds_ago);
  }
  void AddWorker(double compute, double wait, double data) {
    const int rank = job_.workers_size();
    Participant* const worker = job_.add_workers();
    worker->set_rank(rank);
    worker->mutable_member()->mutable_task()->set_type(WORKER);
    worker->mutable_member()->mutable_task()->set_index(rank);
    worker->mutable_member()->set_address("h:7");
    WorkerProgress* const progress = job_.mutable_progress()->add_workers();
    progress->set_rank(rank);
    progress->set_compute_seconds(compute);
    progress->set_wait_seconds(wait);
    progress->set_data_seconds(data);
  }
  std::string Why() const { return WhyText(job_, kNow); }

  JobStatus job_;
};

TEST_F(WhyTextTest, WhatAQueuedJobWaitsFor) {
  job_.set_waiting_for("needs 3 workers and 2 ps; free: 2 workers, 2 ps");
  EXPECT_THAT(Why(), HasSubstr("j-0007 (ctr) has been queued for 1:00\n"
                               "needs 3 workers and 2 ps; free: 2"));
}

TEST_F(WhyTextTest, HowLongAgoAJobHasEnded) {
  Enter(SUCCEEDED, "all workers are done", 5);
  EXPECT_THAT(Why(), HasSubstr("j-0007 (ctr) succeeded 0:05 ago\n"));
  Enter(CANCELLED, "by alice", 5);
  EXPECT_THAT(Why(), HasSubstr("j-0007 (ctr) was cancelled 0:05 ago\n"));
}

TEST_F(WhyTextTest, TheWorkerThatTheOthersWaitFor) {
  Enter(RUNNING, "", 10);
  AddWorker(4, 6, 0);
  AddWorker(9, 0.5, 0.5);
  AddWorker(4, 6, 0);
  EXPECT_THAT(Why(), AllOf(HasSubstr("the others wait for rank 1, worker:1 at "
                                     "h:7: it waits 5% of its time, they 60%"),
                           HasSubstr("57% of the workers' time is spent "
                                     "computing\n"),
                           HasSubstr("42% of the workers' time is spent "
                                     "waiting for other workers"),
                           HasSubstr("makes no checkpoints")));
}

TEST_F(WhyTextTest, AWorkerThatHasBecomeSlowIsFoundAtOnce) {
  Enter(RUNNING, "", 36'000);
  for (int i = 0; i < 3; ++i) AddWorker(34'000, 2'000, 0);
  const JobProgress before = job_.progress();
  EXPECT_THAT(WhyText(job_, kNow, {}, before),
              HasSubstr("no worker holds the others up"));
  job_.mutable_progress()->set_clock(10);
  for (auto& worker : *job_.mutable_progress()->mutable_workers()) {
    worker.set_clock(worker.rank() == 2 ? 10 : 11);
    const bool slow = worker.rank() == 2;
    worker.set_compute_seconds(worker.compute_seconds() + (slow ? 2 : 0.5));
    worker.set_wait_seconds(worker.wait_seconds() + (slow ? 0 : 1.5));
  }
  EXPECT_THAT(WhyText(job_, kNow, {}, before),
              HasSubstr("the others wait for rank 2, worker:2 at h:7: it waits "
                        "0% of its time, they 75%"));
  EXPECT_THAT(WhyText(job_, kNow), HasSubstr("no worker holds the others up"));
  // No step has ended since.
  EXPECT_THAT(WhyText(job_, kNow, {}, job_.progress()),
              HasSubstr("no worker holds the others up"));
}

TEST_F(WhyTextTest, WhereStepsEndWithoutSomeWorkersItIsTheChiefOrNobody) {
  Enter(RUNNING, "", 10);
  AddWorker(4, 6, 0);
  AddWorker(4, 6, 0);
  AddWorker(9, 0.5, 0.5);
  job_.mutable_spec()->mutable_data()->mutable_test()->mutable_digits();
  ConsistencySpec& consistency = *job_.mutable_spec()->mutable_consistency();
  consistency.set_mode(ConsistencySpec::SYNC_WITH_BACKUPS);
  consistency.set_needed(2);
  const auto set_clocks = [&](int64_t chief, int64_t others) {
    for (auto& worker : *job_.mutable_progress()->mutable_workers()) {
      worker.set_clocks_per_epoch(50);
      worker.set_clock(worker.rank() == 0 ? chief : others);
    }
  };
  set_clocks(120, 121);
  EXPECT_THAT(Why(), AllOf(HasSubstr("a step ends with 2 of 3 workers: a slow "
                                     "one holds nobody up\n"),
                           Not(HasSubstr("the others wait for"))));
  consistency.set_mode(ConsistencySpec::SYNC_WITH_TIMEOUT);
  consistency.set_timeout_seconds(0.5);
  EXPECT_THAT(Why(), HasSubstr("a step ends with 2 of 3 workers 0.5 s after "
                               "the first one is done: a slow one holds up "
                               "the others no longer\n"));
  set_clocks(120, 150);
  EXPECT_THAT(Why(), AllOf(HasSubstr("the others wait for rank 0, worker:0 at "
                                     "h:7, the chief: they are at the end of "
                                     "an epoch"),
                           Not(HasSubstr("holds nobody up"))));
}

// Of three workers with two needed one is lost, or an attempt has two alone.
TEST_F(WhyTextTest, WithoutBackupsASlowWorkerHoldsUpTheOthers) {
  Enter(RUNNING, "", 10);
  AddWorker(4, 6, 0);
  AddWorker(9, 0.5, 0.5);
  ConsistencySpec& consistency = *job_.mutable_spec()->mutable_consistency();
  consistency.set_mode(ConsistencySpec::SYNC_WITH_BACKUPS);
  consistency.set_needed(2);
  const auto says = AllOf(
      HasSubstr("a step needs 2 workers and 2 are left: none is a backup, and "
                "the others wait for a slow one\n"
                "the others wait for rank 1, worker:1 at h:7: it waits 5% of "
                "its time, they 60%"),
      Not(HasSubstr("holds nobody up")));
  EXPECT_THAT(Why(), says);
  EXPECT_EQ(StragglerOf(job_, job_.progress(), {}), 1u);

  AddWorker(1, 0, 0);
  EXPECT_THAT(Why(), HasSubstr("a step ends with 2 of 3 workers: a slow one "
                               "holds nobody up\n"));
  EXPECT_EQ(StragglerOf(job_, job_.progress(), {}), std::nullopt);
  job_.mutable_progress()->mutable_workers()->RemoveLast();
  job_.add_lost_workers()->set_rank(2);
  EXPECT_THAT(Why(), says);
}

TEST_F(WhyTextTest, DataThatComesTooSlowly) {
  Enter(RUNNING, "", 10);
  AddWorker(1, 0, 9);
  AddWorker(1, 0, 9);
  EXPECT_THAT(Why(),
              AllOf(HasSubstr("no worker holds the others up"),
                    HasSubstr("90% of the workers' time is spent waiting "
                              "for data")));
}

TEST_F(WhyTextTest, WhyItWentBackAndWhereTo) {
  Enter(RUNNING, "", 50);
  Enter(QUEUED, "ps 1 at h:1 was lost; attempt 2 goes on from clock 800", 40);
  Enter(RUNNING, "", 30);
  job_.mutable_spec()->mutable_checkpoint()->set_every_clocks(100);
  EXPECT_THAT(Why(),
              AllOf(HasSubstr("went back 0:40 ago: ps 1 at h:1 was lost"),
                    HasSubstr("has no checkpoint yet")));
  job_.set_waiting_for("no checkpoint: at clock 900: ps:0 at h:2: disk full");
  CheckpointInfo* const last = job_.add_checkpoints();
  last->set_clock(800);
  last->set_path("/c/800");
  last->mutable_time()->set_seconds(3600 - 20);
  EXPECT_THAT(Why(), AllOf(HasSubstr("\nno checkpoint: at clock 900"),
                           HasSubstr("last checkpoint 0:20 ago: clock 800"),
                           Not(HasSubstr("resume"))));
}

TEST_F(WhyTextTest, WhatHelpsAJobThatHasFailed) {
  Enter(RUNNING, "", 50);
  Enter(FAILED, "worker 1 at h:1: disk full", 5);
  EXPECT_THAT(Why(), AllOf(HasSubstr("worker 1 at h:1: disk full\n"),
                           Not(HasSubstr("resume"))));
  job_.mutable_spec()->mutable_checkpoint();
  job_.add_checkpoints()->set_clock(800);
  EXPECT_THAT(Why(), HasSubstr("synctl resume j-0007"));
}

TEST_F(WhyTextTest, WhatHasHappenedLately) {
  Enter(QUEUED, "", 50);
  JobEvent event;
  event.set_kind("drain");
  event.set_text("ps 1 is drained (new kernel)");
  event.mutable_time()->set_seconds(3600 - 20);
  const absl::Time now = absl::FromUnixSeconds(3600);
  EXPECT_THAT(WhyText(job_, now, {event}),
              HasSubstr("0:20 ago: drain: ps 1 is drained (new kernel)\n"));
  Enter(FAILED, "disk full", 5);
  EXPECT_THAT(WhyText(job_, now, {event}), Not(HasSubstr("drained")));
}

}  // namespace
}  // namespace syncline::ctl
