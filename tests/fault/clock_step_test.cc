// Goal: setting the wall clock, forward or back, disturbs no job: heartbeats
// go on, no cut or lease runs out early, no wait is prolonged, a broken call is
// tried again in time. Method: the real executables with tests/testing/
// stepped_clock preloaded, whose offset the test changes while jobs run.

#include <csignal>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(120);

class ClockStepTest : public testing::Test {
 protected:
  void SetUp() override {
    SetAhead(absl::ZeroDuration());
    ASSERT_OK(cluster_.Start());
  }

  // The daemons' wall clocks are this much ahead from now on.
  void SetAhead(absl::Duration ahead) {
    std::fstream file(offset_file_, std::ios::in | std::ios::out);
    if (!file.is_open()) file.open(offset_file_, std::ios::out);
    const int64_t ns = absl::ToInt64Nanoseconds(ahead);
    file.write(reinterpret_cast<const char*>(&ns), sizeof(ns));
  }

  std::string Write(JobSpec job) {
    job.mutable_resources()->set_workers(2);
    return WriteJob(cluster_.dir(), job, MlpModel(784, 32, 10));
  }

  // Clocks go on for longer than any lease or heartbeat after a step.
  void ExpectProgress(const std::string& job_id) {
    ASSERT_OK_AND_ASSIGN(const JobStatus before, cluster_.Get(job_id));
    const absl::Time until = absl::Now() + absl::Seconds(8);
    int64_t clock = before.progress().clock();
    do {
      ++clock;
      ASSERT_OK_AND_ASSIGN(const JobStatus now,
                           cluster_.WaitForClock(job_id, clock, kLong));
      clock = now.progress().clock();
    } while (absl::Now() < until);
  }

  const TempDir clock_dir_;
  const std::string offset_file_ = clock_dir_.File("ahead_ns");
  TestCluster cluster_{
      {.ps = 1,
       .workers = 2,
       .environment = {{"LD_PRELOAD", std::string(SteppedClockLibrary())},
                       {"SYNCLINE_STEPPED_CLOCK", offset_file_}}}};
};

TEST_F(ClockStepTest, AJobRunsThroughStepsForwardAndBack) {
  ASSERT_OK_AND_ASSIGN(const std::string job_id,
                       cluster_.Submit(Write(EndlessJob())));
  ASSERT_OK(cluster_.WaitForClock(job_id, 3, kLong));
  for (const absl::Duration ahead :
       {absl::Hours(1), -absl::Hours(1), absl::ZeroDuration()}) {
    SCOPED_TRACE(absl::FormatDuration(ahead));
    SetAhead(ahead);
    ASSERT_NO_FATAL_FAILURE(ExpectProgress(job_id));
  }
  ASSERT_OK(cluster_.Synctl({"cancel", job_id}));
  ASSERT_OK_AND_ASSIGN(const JobStatus end, cluster_.WaitForEnd(job_id, kLong));
  EXPECT_EQ(end.state(), CANCELLED);
  ASSERT_OK_AND_ASSIGN(const JobStatus next,
                       cluster_.Train(Write(DigitsJob()), kLong));
  EXPECT_EQ(next.state(), SUCCEEDED);
}

// After a step back gRPC's timers have to go on: they reconnect, and ring for
// what is to be tried again. The members wait for their next attempt when the
// clock steps.
TEST_F(ClockStepTest, ASchedulerThatRestartsIsFoundAgainAfterAStepBack) {
  ASSERT_OK(cluster_.Train(Write(DigitsJob()), kLong));
  cluster_.daemon("scheduler").Signal(SIGKILL);
  ASSERT_TRUE(
      cluster_.daemon("scheduler").WaitUntil(absl::Now() + kLong).has_value());
  absl::SleepFor(absl::Seconds(3));
  SetAhead(-absl::Hours(1));
  absl::SleepFor(absl::Milliseconds(100));
  ASSERT_OK(cluster_.StartDaemon("scheduler"));
  ASSERT_OK(cluster_.WaitForFreeMembers(3, absl::Seconds(60)));
  ASSERT_OK(cluster_.Train(Write(DigitsJob()), kLong));
}

TEST_F(ClockStepTest, ALostWorkerIsNoticedAfterAStepBack) {
  ASSERT_OK_AND_ASSIGN(const std::string job_id,
                       cluster_.Submit(Write(EndlessJob())));
  ASSERT_OK(cluster_.WaitForClock(job_id, 3, kLong));
  SetAhead(-absl::Hours(1));
  cluster_.daemon("worker-0").Signal(SIGSTOP);
  ASSERT_OK_AND_ASSIGN(const JobStatus end, cluster_.WaitForEnd(job_id, kLong));
  cluster_.daemon("worker-0").Signal(SIGCONT);
  EXPECT_EQ(end.state(), FAILED);
  // Indexes are given in the order of registration; only this one is silent.
  EXPECT_THAT(end.transitions().rbegin()->reason(),
              testing::AllOf(testing::StartsWith("worker "),
                             HasSubstr("was lost: silent")));
}

}  // namespace
}  // namespace syncline
