// Goal: who scales a job reads what follows. Method: jobs and clusters of each
// kind.

#include "scheduler/ctl/scale_command.h"

#include <string>

#include "gtest/gtest.h"

namespace syncline::ctl {
namespace {

JobStatus Job(JobState state, int had) {
  JobStatus job;
  job.set_job_id("j-0001");
  job.set_state(state);
  job.mutable_spec()->mutable_resources()->set_workers(2);
  for (int i = 0; i < had; ++i) job.add_workers();
  return job;
}

// With so many free workers, and others that are not to be had.
ClusterStatus Cluster(int free) {
  ClusterStatus cluster;
  const auto add = [&](TaskType type) {
    ClusterStatus::Entry* entry = cluster.add_members();
    entry->mutable_member()->mutable_task()->set_type(type);
    return entry;
  };
  for (int i = 0; i < free; ++i) add(i == 0 ? CHIEF : WORKER);
  add(WORKER)->set_job_id("j-0001");
  add(WORKER)->set_job_id("(not confirmed)");
  add(WORKER)->set_use(SetMemberUseRequest::CORDON);
  add(PS);
  return cluster;
}

TEST(ScaleCommandTest, WhatFollowsIsSaid) {
  EXPECT_EQ(ScaleAnswer(Job(QUEUED, 0), Cluster(0), 3),
            "job j-0001 waits, and begins with 3 workers");
  EXPECT_EQ(ScaleAnswer(Job(RUNNING, 2), Cluster(0), 2),
            "job j-0001 has 2 workers already; nothing changes");
  // After a loss; it should have two, and would take one more.
  EXPECT_EQ(ScaleAnswer(Job(RUNNING, 1), Cluster(0), 1),
            "job j-0001 has 1 worker, and stays with that");
  EXPECT_EQ(ScaleAnswer(Job(RUNNING, 2), Cluster(0), 1),
            "job j-0001 has 2, and goes on with 1 worker from its next "
            "checkpoint on, which it writes now");
  EXPECT_EQ(ScaleAnswer(Job(RUNNING, 2), Cluster(1), 3),
            "job j-0001 has 2, and goes on with 3 workers from its next "
            "checkpoint on");
  EXPECT_EQ(ScaleAnswer(Job(PREPARING, 2), Cluster(1), 3),
            "job j-0001 has 2, and goes on with 3 workers from its next "
            "checkpoint on, which it writes once it runs");
  EXPECT_EQ(ScaleAnswer(Job(RUNNING, 2), Cluster(0), 4),
            "job j-0001 has 2, and goes on with 4 workers when they are free: "
            "no worker is free now");
  EXPECT_EQ(ScaleAnswer(Job(RUNNING, 2), Cluster(1), 4),
            "job j-0001 has 2, and goes on with 4 workers when they are free: "
            "1 more is free now, so it goes on with 3 until then");
  EXPECT_EQ(ScaleAnswer(Job(RUNNING, 2), Cluster(2), 5),
            "job j-0001 has 2, and goes on with 5 workers when they are free: "
            "2 more are free now, so it goes on with 4 until then");
}

TEST(ScaleCommandTest, WhatWasSaidBeforeIsTakenBack) {
  JobStatus job = Job(RUNNING, 2);
  job.set_wanted_workers(4);
  EXPECT_EQ(ScaleAnswer(job, Cluster(1), 2),
            "job j-0001 has 2 workers, and stays with that");
}

TEST(ScaleCommandTest, AJobWithGpusTakesOnlyThose) {
  JobStatus job = Job(RUNNING, 2);
  job.mutable_spec()->mutable_resources()->set_device(ResourcesSpec::CUDA);
  EXPECT_EQ(ScaleAnswer(job, Cluster(3), 3),
            "job j-0001 has 2, and goes on with 3 workers when they are free: "
            "no worker is free now");
}

}  // namespace
}  // namespace syncline::ctl
