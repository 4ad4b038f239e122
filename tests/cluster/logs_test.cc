// Goal: an on-call reads what all members of a job log, while it runs and after
// it, what a killed process wrote included; one grep for the job's trace id
// finds it in every process. Method: the real processes and synctl.

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr absl::Duration kTimeout = absl::Minutes(2);

class LogsTest : public ::testing::Test {
 protected:
  std::string Write(JobSpec job) {
    return WriteJob(cluster_.dir(), std::move(job), MlpModel(784, 32, 10));
  }
  static JobSpec Endless() {
    JobSpec job = DigitsJob();
    job.mutable_training()->set_epochs(100'000);
    job.mutable_resources()->set_workers(2);
    job.mutable_resources()->set_ps(1);
    return job;
  }
  std::string Synctl(const std::vector<std::string>& arguments) {
    const auto run = cluster_.Synctl(arguments);
    EXPECT_OK(run);
    if (!run.ok()) return "";
    EXPECT_EQ(run->exit.code, 0) << run->err;
    return run->out;
  }

  TestCluster cluster_{TestCluster::Options{.ps = 1, .workers = 2}};
};

TEST_F(LogsTest, OneTraceTellsAJobsStoryInAllProcesses) {
  ASSERT_OK(cluster_.Start());
  JobSpec job = DigitsJob();
  job.mutable_resources()->set_workers(2);
  job.mutable_resources()->set_ps(1);
  ASSERT_OK_AND_ASSIGN(
      const auto submitted,
      cluster_.Synctl({"submit", Write(job), "--watch", "--trace-id", kTrace}));
  EXPECT_EQ(submitted.exit.code, 0) << submitted.err;
  for (const char* const daemon :
       {"scheduler", "chief-0", "worker-0", "ps-0"}) {
    EXPECT_THAT(cluster_.LogOf(daemon),
                HasSubstr(absl::StrCat(" job=j-0001 trace=", kTrace)))
        << daemon;
  }
  EXPECT_THAT(*ReadFile(cluster_.dir().File("state/audit.log"), 1 << 20),
              HasSubstr(absl::StrCat("\"trace\":\"", kTrace, "\"")));
  EXPECT_THAT(Synctl({"get", "j-0001"}), HasSubstr(kTrace));
  // Of the job that has ended: workers have stored theirs, the ps has its own.
  const std::string all = Synctl({"logs", "j-0001"});
  EXPECT_THAT(
      all,
      AllOf(HasSubstr("chief:0     ts="), HasSubstr("worker:0    ts="),
            HasSubstr("ps:0        ts="), HasSubstr("msg=\"job released\"")));
  for (const absl::string_view line :
       absl::StrSplit(all, '\n', absl::SkipEmpty())) {
    EXPECT_TRUE(absl::StrContains(line, kTrace)) << line;
  }
  const std::string last =
      Synctl({"logs", "j-0001", "--task", "worker:0", "--tail", "1"});
  EXPECT_EQ(std::count(last.begin(), last.end(), '\n'), 1) << last;
  EXPECT_THAT(last, HasSubstr("job released"));
  EXPECT_THAT(
      Synctl({"logs", "j-0001", "--task", "ps:0", "--output", "json"}),
      AllOf(HasSubstr("\"task\":\"ps:0\""), HasSubstr("\"line\":\"ts=")));
}

TEST_F(LogsTest, FollowsAJobToItsEnd) {
  ASSERT_OK(cluster_.Start());
  ASSERT_OK_AND_ASSIGN(const std::string job_id,
                       cluster_.Submit(Write(Endless())));
  ASSERT_OK(cluster_.WaitForClock(job_id, 5, kTimeout));
  ASSERT_OK_AND_ASSIGN(auto follow,
                       cluster_.StartSynctl({"logs", job_id, "-f"}));
  EXPECT_TRUE(Eventually(kTimeout, [&] {
    const std::string out = follow->out();
    return absl::StrContains(out, "chief:0") &&
           absl::StrContains(out, "worker:0") && absl::StrContains(out, "ps:0");
  })) << follow->out();
  EXPECT_THAT(follow->out(), Not(HasSubstr("job released")));
  // A scheduler that is replaced gives the same stream again.
  cluster_.daemon("scheduler").Signal(SIGKILL);
  ASSERT_TRUE(cluster_.daemon("scheduler").WaitUntil(absl::Now() + kTimeout));
  ASSERT_OK(cluster_.StartDaemon("scheduler"));
  ASSERT_OK_AND_ASSIGN(const JobStatus before, cluster_.Get(job_id));
  ASSERT_OK(
      cluster_.WaitForClock(job_id, before.progress().clock() + 5, kTimeout));
  ASSERT_OK(cluster_.Synctl({"cancel", job_id}));
  ASSERT_OK_AND_ASSIGN(const auto ended, follow->Finish(kTimeout));
  EXPECT_EQ(ended.exit.code, 0) << ended.err;
  EXPECT_THAT(ended.out,
              AllOf(HasSubstr("worker:0"), HasSubstr("msg=\"job released\""),
                    HasSubstr("msg=\"job closed\"")));
  int running = 0;
  for (const absl::string_view line : absl::StrSplit(ended.out, '\n')) {
    running += absl::StartsWith(line, "worker:0") &&
               absl::StrContains(line, "msg=\"job running\"");
  }
  EXPECT_EQ(running, 1) << ended.out;
}

TEST_F(LogsTest, WhatAKilledProcessWroteIsKept) {
  ASSERT_OK(cluster_.Start());
  ASSERT_OK_AND_ASSIGN(const std::string job_id,
                       cluster_.Submit(Write(Endless())));
  ASSERT_OK(cluster_.WaitForClock(job_id, 5, kTimeout));
  ASSERT_OK_AND_ASSIGN(auto follow,
                       cluster_.StartSynctl({"logs", job_id, "-f"}));
  EXPECT_TRUE(Eventually(
      kTimeout, [&] { return absl::StrContains(follow->out(), "worker:0"); }));
  cluster_.daemon("worker-0").Signal(SIGKILL);
  ASSERT_OK(cluster_.WaitForEnd(job_id, kTimeout));
  ASSERT_OK_AND_ASSIGN(const auto ended, follow->Finish(kTimeout));
  EXPECT_EQ(ended.exit.code, 0) << ended.err;
  // The others went on, and the one that is gone is named.
  EXPECT_THAT(ended.out, HasSubstr("msg=\"job released\""));
  const std::string without = Synctl({"logs", job_id});
  EXPECT_THAT(without, HasSubstr("worker:0    ts="));
  EXPECT_THAT(without, HasSubstr("no process has this task now"));
  EXPECT_THAT(without, HasSubstr("chief:0     ts="));
  ASSERT_OK(cluster_.StartDaemon("worker-0"));
  ASSERT_OK(cluster_.WaitForFreeMembers(3, kTimeout));
  EXPECT_THAT(Synctl({"logs", job_id, "--task", "worker:0"}),
              HasSubstr("msg=\"job running\""));
}

}  // namespace
}  // namespace syncline
