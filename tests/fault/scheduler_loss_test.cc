// Goal: the loss of the scheduler is told within ten seconds; a restarted one
// knows every job: the running one runs on, queued ones
// run, finished ones keep their results; the daemons come back by themselves. A
// scheduler that was frozen goes on with its jobs. Method: the real
// executables; SIGKILL, then a start with the same state; SIGSTOP and SIGCONT.

#include <csignal>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr int kMembers = 3;

class SchedulerLossTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(cluster_.Start()); }

  std::string Write(JobSpec job) {
    job.mutable_resources()->set_workers(2);
    return WriteJob(cluster_.dir(), job, MlpModel(784, 32, 10));
  }

  TestCluster cluster_{
      {.ps = 1, .workers = 2, .step_pause = absl::Milliseconds(5)}};
};

TEST_F(SchedulerLossTest, KilledInTheMiddleOfAJob) {
  ASSERT_OK_AND_ASSIGN(const JobStatus done,
                       cluster_.Train(Write(DigitsJob())));
  ASSERT_OK_AND_ASSIGN(
      const auto watcher,
      cluster_.StartSynctl({"submit", Write(EndlessJob()), "--watch"}));
  ASSERT_OK(cluster_.WaitForClock("j-0002", 5, absl::Seconds(60)));
  ASSERT_OK_AND_ASSIGN(const std::string queued,
                       cluster_.Submit(Write(DigitsJob())));

  const absl::Time killed = absl::Now();
  cluster_.daemon("scheduler").Signal(SIGKILL);
  ASSERT_OK_AND_ASSIGN(const auto told, watcher->Finish(absl::Seconds(60)));
  EXPECT_LE(absl::Now() - killed, absl::Seconds(10));
  EXPECT_EQ(told.exit.code, 3);
  EXPECT_THAT(told.err, HasSubstr(cluster_.scheduler_address()));

  ASSERT_OK(cluster_.StartDaemon("scheduler"));
  ASSERT_OK_AND_ASSIGN(const JobStatus kept, cluster_.Get("j-0002"));
  EXPECT_EQ(kept.state(), RUNNING);
  EXPECT_EQ(kept.attempt(), 1u);
  ASSERT_OK(cluster_.WaitForClock("j-0002", kept.progress().clock() + 5,
                                  absl::Seconds(90)));
  ASSERT_OK(cluster_.Synctl({"cancel", "j-0002"}));
  ASSERT_OK_AND_ASSIGN(const JobStatus next,
                       cluster_.WaitForEnd(queued, absl::Seconds(90)));
  EXPECT_EQ(next.state(), SUCCEEDED);
  EXPECT_OK(cluster_.WaitForFreeMembers(kMembers, absl::Seconds(30)));
  // The jobs that were done before are still there, results and all.
  ASSERT_OK_AND_ASSIGN(const auto list, cluster_.Synctl({"list"}));
  for (const std::string& id : {done.job_id(), queued, std::string("j-0002")}) {
    EXPECT_THAT(list.out, HasSubstr(id));
  }
  ASSERT_OK_AND_ASSIGN(const std::string file,
                       cluster_.FetchModel(done.job_id()));
  EXPECT_OK(ReadWeights(file));
}

TEST_F(SchedulerLossTest, AWatchRidesOverAQuickRestartAsTheJobDoes) {
  ASSERT_OK_AND_ASSIGN(
      const auto watcher,
      cluster_.StartSynctl({"submit", Write(EndlessJob()), "--watch"}));
  ASSERT_OK(cluster_.WaitForClock("j-0001", 1, absl::Seconds(60)));
  cluster_.daemon("scheduler").Signal(SIGKILL);
  ASSERT_TRUE(cluster_.daemon("scheduler")
                  .WaitUntil(absl::Now() + absl::Seconds(10))
                  .has_value());
  ASSERT_OK(cluster_.StartDaemon("scheduler"));
  ASSERT_OK_AND_ASSIGN(const JobStatus kept, cluster_.Get("j-0001"));
  ASSERT_OK(cluster_.WaitForClock("j-0001", kept.progress().clock() + 5,
                                  absl::Seconds(90)));
  ASSERT_OK(cluster_.Synctl({"cancel", "j-0001"}));
  ASSERT_OK_AND_ASSIGN(const auto told, watcher->Finish(absl::Seconds(60)));
  EXPECT_THAT(told.err, HasSubstr("was cancelled after "));
}

TEST_F(SchedulerLossTest, AWatchSaysThatTheSchedulerIsStopping) {
  ASSERT_OK_AND_ASSIGN(
      const auto watcher,
      cluster_.StartSynctl({"submit", Write(EndlessJob()), "--watch"}));
  ASSERT_OK(cluster_.WaitForClock("j-0001", 1, absl::Seconds(60)));
  cluster_.daemon("scheduler").Signal(SIGTERM);
  ASSERT_OK_AND_ASSIGN(const auto told, watcher->Finish(absl::Seconds(60)));
  EXPECT_EQ(told.exit.code, 138) << told.out << told.err;
  EXPECT_THAT(told.err, HasSubstr("the scheduler is stopping"));
  EXPECT_THAT(told.err, HasSubstr("j-0001"));
  // The job goes on, and the next scheduler finds it running.
  ASSERT_TRUE(cluster_.daemon("scheduler")
                  .WaitUntil(absl::Now() + absl::Seconds(30))
                  .has_value());
  ASSERT_OK(cluster_.StartDaemon("scheduler"));
  ASSERT_OK_AND_ASSIGN(const JobStatus job, cluster_.Get("j-0001"));
  EXPECT_EQ(job.state(), RUNNING);
  EXPECT_EQ(job.attempt(), 1u);
}

TEST_F(SchedulerLossTest, ASubmissionWithAKeyOutlivesTheScheduler) {
  const std::string file = Write(DigitsJob());
  ASSERT_OK_AND_ASSIGN(const auto first,
                       cluster_.Synctl({"submit", file, "--key", "nightly"}));
  EXPECT_THAT(first.out, HasSubstr("submitted j-0001"));
  cluster_.daemon("scheduler").Signal(SIGKILL);
  ASSERT_TRUE(cluster_.daemon("scheduler")
                  .WaitUntil(absl::Now() + absl::Seconds(10))
                  .has_value());
  ASSERT_OK(cluster_.StartDaemon("scheduler"));
  ASSERT_OK_AND_ASSIGN(const auto again,
                       cluster_.Synctl({"submit", file, "--key", "nightly"}));
  EXPECT_THAT(again.out, HasSubstr("submitted j-0001"));
  EXPECT_THAT(again.out, HasSubstr("before"));
  ASSERT_OK_AND_ASSIGN(const auto other, cluster_.Synctl({"submit", file}));
  EXPECT_THAT(other.out, HasSubstr("submitted j-0002"));
}

TEST_F(SchedulerLossTest, AWatchSaysThatAFrozenSchedulerIsSilent) {
  ASSERT_OK_AND_ASSIGN(
      const auto watcher,
      cluster_.StartSynctl({"submit", Write(EndlessJob()), "--watch"}));
  ASSERT_OK(cluster_.WaitForClock("j-0001", 1, absl::Seconds(60)));
  cluster_.daemon("scheduler").Signal(SIGSTOP);
  const auto told = watcher->Finish(absl::Seconds(60));
  cluster_.daemon("scheduler").Signal(SIGCONT);
  ASSERT_OK(told);
  EXPECT_EQ(told->exit.code, 3);
  EXPECT_THAT(told->out, HasSubstr("no news from the scheduler for "));
  EXPECT_THAT(told->err, HasSubstr(cluster_.scheduler_address()));
}

// A scheduler that does not run for a while.
class FrozenSchedulerTest : public SchedulerLossTest {
 protected:
  // Longer than the keep-alive of its daemons, which then have left their
  // streams, and shorter than their --orphan-seconds.
  static constexpr absl::Duration kLong = absl::Seconds(21);

  void StartJob() {
    ASSERT_OK_AND_ASSIGN(job_id_, cluster_.Submit(Write(EndlessJob())));
    ASSERT_OK(cluster_.WaitForClock(job_id_, 5, absl::Seconds(60)));
  }
  void Freeze(absl::Duration time, const std::string& killed_meanwhile = "") {
    ChildProcess& scheduler = cluster_.daemon("scheduler");
    scheduler.Signal(SIGSTOP);
    if (!killed_meanwhile.empty()) {
      cluster_.daemon(killed_meanwhile).Signal(SIGKILL);
    }
    EXPECT_FALSE(scheduler.WaitUntil(absl::Now() + time).has_value());
    scheduler.Signal(SIGCONT);
  }
  void ExpectTheJobGoesOn() {
    ASSERT_OK_AND_ASSIGN(const JobStatus after, cluster_.Get(job_id_));
    EXPECT_EQ(after.state(), RUNNING);
    // Longer than the scheduler waits for a member.
    const absl::Time until = absl::Now() + absl::Seconds(12);
    int64_t clock = after.progress().clock();
    do {
      ++clock;
      ASSERT_OK_AND_ASSIGN(
          const JobStatus now,
          cluster_.WaitForClock(job_id_, clock, absl::Seconds(60)));
      clock = now.progress().clock();
    } while (absl::Now() < until);
    ASSERT_OK(cluster_.Synctl({"cancel", job_id_}));
    EXPECT_OK(cluster_.WaitForFreeMembers(kMembers, absl::Seconds(30)));
  }

  std::string job_id_;
};

// Its members were not silent: it was not there to hear them.
TEST_F(FrozenSchedulerTest, ForLongerThanALeaseItLosesNobody) {
  ASSERT_NO_FATAL_FAILURE(StartJob());
  Freeze(absl::Seconds(8));
  ExpectTheJobGoesOn();
  EXPECT_THAT(cluster_.LogOf("scheduler"), Not(HasSubstr("silent for")));
}

// Their streams are closed when it wakes, but they live and come back. Which of
// the two it hears of first is chance.
TEST_F(FrozenSchedulerTest, ForLongerThanTheKeepAliveItLosesNobody) {
  ASSERT_NO_FATAL_FAILURE(StartJob());
  Freeze(kLong);
  ExpectTheJobGoesOn();
  EXPECT_THAT(cluster_.LogOf("scheduler"),
              AnyOf(HasSubstr("stream has closed"),
                    HasSubstr("this process opened another session")));
}

TEST_F(FrozenSchedulerTest, AMemberThatDiedMeanwhileIsLostByItsName) {
  ASSERT_NO_FATAL_FAILURE(StartJob());
  Freeze(kLong, "ps-0");
  ASSERT_OK_AND_ASSIGN(const JobStatus end,
                       cluster_.WaitForEnd(job_id_, absl::Seconds(30)));
  EXPECT_EQ(end.state(), FAILED);
  EXPECT_EQ(end.exit_code(), 138);
  EXPECT_THAT(end.transitions().rbegin()->reason(),
              AllOf(StartsWith("ps 0 at 127.0.0.1:"),
                    HasSubstr("was lost: stream closed; last clock ")));
  EXPECT_OK(cluster_.WaitForFreeMembers(kMembers - 1, absl::Seconds(30)));
}

TEST_F(SchedulerLossTest, OneSchedulerPerStateFolder) {
  ASSERT_OK_AND_ASSIGN(
      auto second,
      RunningProgram::Start(
          cluster_.dir().path(),
          {BinaryDir() + "/syncline-scheduler", "--listen=127.0.0.1:0",
           "--state-dir=" + cluster_.dir().File("state")},
          {{"TF_CONFIG", std::nullopt}}));
  ASSERT_OK_AND_ASSIGN(const auto result, second->Finish(absl::Seconds(30)));
  EXPECT_EQ(result.exit.code, 1);
  EXPECT_THAT(result.err, HasSubstr(cluster_.dir().File("state")));
  EXPECT_OK(cluster_.Train(Write(DigitsJob())));
}

}  // namespace
}  // namespace syncline
