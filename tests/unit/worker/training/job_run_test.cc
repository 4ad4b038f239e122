// Goal: a stop is answered soon, also while the model is on its way. Method: a
// run whose scheduler sends nothing, stopped from another thread.

#include "worker/training/job_run.h"

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fakes/fake_artifacts.h"
#include "tests/testing/fakes/wait_log.h"
#include "tests/testing/temp_dir.h"

namespace syncline::worker {
namespace {

using ::testing::HasSubstr;

TEST(JobRunTest, AStopEndsTheFetchOfTheModel) {
  const TempDir dir;
  FakeArtifacts scheduler;
  scheduler.stalls = true;
  WorkerMetrics metrics(nullptr);
  WaitLog<DaemonMessage> sent;
  JobAssignment assignment;
  assignment.set_job_id("j-0001");
  assignment.add_workers()->mutable_member()->set_incarnation(7);
  JobRun::Options options;
  options.work_dir = dir.File("work");
  options.incarnation = 7;
  JobRun run(assignment, options, &scheduler, &metrics,
             [&](DaemonMessage message) { sent.Add(std::move(message)); });
  std::thread stopper([&] {
    scheduler.stalled.Await(1);
    EXPECT_TRUE(run.RequestStop("cancelled"));
  });
  run.Execute();
  stopper.join();
  // No JobPrepared: the stop is no problem of the job.
  const std::vector<DaemonMessage> messages = sent.Await(1);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_TRUE(messages[0].done().released());
  // ABORTED, not OK: a scheduler that was out of reach may not know of the
  // stop.
  EXPECT_EQ(messages[0].done().code(),
            static_cast<int>(absl::StatusCode::kAborted));
  EXPECT_EQ(messages[0].done().message(), "stopped: cancelled");
}

TEST(JobRunTest, ASchedulerThatIsOutOfReachForAMomentIsAskedAgain) {
  const TempDir dir;
  FakeArtifacts scheduler;  // has no files
  scheduler.fetch_failures = 1;
  WorkerMetrics metrics(nullptr);
  WaitLog<DaemonMessage> sent;
  JobAssignment assignment;
  assignment.set_job_id("j-0001");
  assignment.add_workers()->mutable_member()->set_incarnation(7);
  JobRun::Options options;
  options.work_dir = dir.File("work");
  options.incarnation = 7;
  JobRun run(assignment, options, &scheduler, &metrics,
             [&](DaemonMessage message) { sent.Add(std::move(message)); });
  run.Execute();
  const std::vector<DaemonMessage> messages = sent.Await(1);
  ASSERT_EQ(messages.size(), 1u);
  ASSERT_EQ(messages[0].prepared().problems_size(), 1);
  EXPECT_THAT(messages[0].prepared().problems(0), HasSubstr("no artifact"));
}

}  // namespace
}  // namespace syncline::worker
