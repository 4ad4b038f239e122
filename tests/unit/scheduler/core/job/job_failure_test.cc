// Goal: a job that fails ends with the best reason that is known, and an exit
// code that says whether to try again. Method: one job, two workers and a ps;
// losses, complaints, standstills and members out of reach, in each order that
// matters.

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/job/orphaned_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/core/job/job.h"
#include "tests/unit/scheduler/core/job/job_fixture.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(JobTest, ALostMemberIsNamedWithItsLastClock) {
  StartAndRun();
  Report(kChief, 240);
  Report(kWorker, 231);
  Gone(kPs, "stream closed");
  EXPECT_EQ(state(), FAILED);
  EXPECT_EQ(reason(),
            "ps 7 at h:1 (incarnation 0x1d0b) was lost: stream "
            "closed; last clock 231");
  EXPECT_EQ(job_.status().exit_code(), 138);
  EXPECT_THAT(job_.Participants(), ElementsAre(kChief, kWorker));
}

// Reports of clocks come twice a second; `synctl get` shows a checkpoint and a
// change of the regime when the chief tells of them.
TEST_F(JobTest, TheLastClockIsNotBehindWhatTheJobShows) {
  StartAndRun();
  Report(kChief, 231);
  Report(kWorker, 231);
  WorkerReport changed;
  changed.mutable_regime()->set_reason("r");
  changed.mutable_regime()->mutable_time()->set_seconds(1);
  changed.mutable_regime()->mutable_regime()->set_first_clock(235);
  job_.OnReport(kChief, changed, now_, &actions_);
  Gone(kWorker, "stream closed");
  EXPECT_THAT(reason(), HasSubstr("last clock 235"));
}

TEST_F(JobTest, ALostWorkersOwnClockIsTold) {
  StartAndRun();
  Report(kChief, 240);
  Gone(kChief, "silent for 5.2 s");
  EXPECT_THAT(reason(), AllOf(HasSubstr("chief 0"), HasSubstr("clock 240")));
}

TEST_F(JobTest, ALossIsABetterReasonThanTheComplaintOfAWorker) {
  StartAndRun();
  Done(kWorker, kUnavailable, "connection refused");
  EXPECT_EQ(state(), RUNNING);
  Tick(absl::Seconds(1));
  Gone(kPs, "stream closed");
  EXPECT_THAT(reason(), HasSubstr("ps 7"));
}

// As gRPC ends the calls of a server that shuts down.
TEST_F(JobTest, ACallThatAStoppingPeerEndsIsItsLoss) {
  StartAndRun();
  Done(kWorker, static_cast<int>(absl::StatusCode::kCancelled), "PushPull");
  EXPECT_EQ(state(), RUNNING);
  Tick(absl::Seconds(1));
  Gone(kPs, "stream closed");
  EXPECT_THAT(reason(), HasSubstr("ps 7"));
  EXPECT_EQ(job_.status().exit_code(), 138);
}

TEST_F(JobTest, AComplaintWithoutALossIsTheReasonAfterAMoment) {
  StartAndRun();
  Done(kWorker, kUnavailable, "connection refused");
  Tick(absl::Seconds(2));
  EXPECT_EQ(reason(), "worker 4 at h:1: connection refused");
  EXPECT_EQ(job_.status().exit_code(), 138);
}

TEST_F(JobTest, AnyOtherFailureEndsTheJobAtOnce) {
  StartAndRun();
  Done(kChief, 3, "label 11 is out of range");
  EXPECT_EQ(state(), FAILED);
  EXPECT_EQ(reason(), "chief 0 at h:1: label 11 is out of range");
  EXPECT_EQ(job_.status().exit_code(), 1);
  Done(kWorker, 3, "another");  // the first one counts
  EXPECT_THAT(reason(), HasSubstr("label 11"));
}

TEST_F(JobTest, AMemberThatIsToldToStopIsWorthARetry) {
  StartAndRun();
  Done(kPs, 10, "stopped by SIGTERM");
  EXPECT_EQ(reason(), "ps 7 at h:1: stopped by SIGTERM");
  EXPECT_EQ(job_.status().exit_code(), 138);
}

// Each daemon stops its part by its own clock; who still calls one that has
// stopped sees an error that is not the job's.
TEST_F(JobTest, ACallThatAnAbsentSchedulerEndedIsWorthARetry) {
  StartAndRun();
  Done(kWorker, 1,
       absl::StrCat("ps:7 at h:1: job j-0001 on ps:7 was closed: ",
                    OrphanedText("h:9", absl::Seconds(3))));
  EXPECT_EQ(state(), FAILED);
  EXPECT_THAT(reason(),
              HasSubstr("scheduler at h:9 has been out of reach for 3s"));
  EXPECT_EQ(job_.status().exit_code(), 138);
}

TEST_F(JobTest, ACallThatCameAfterThatIsToo) {
  StartAndRun();
  Done(kWorker, 9,
       absl::StrCat("job j-0001 is not open on this ps: it was closed: ",
                    OrphanedText("h:9", absl::Seconds(3))));
  EXPECT_EQ(state(), FAILED);
  EXPECT_EQ(job_.status().exit_code(), 138);
}

// A new process answered at its address before the loss was noticed.
TEST_F(JobTest, APsThatHasBegunAnewIsALoss) {
  StartAndRun();
  Done(kWorker, 9, "PushPull (5 attempts): job j-0001 is not open on this ps");
  EXPECT_EQ(state(), FAILED);
  EXPECT_EQ(job_.status().exit_code(), 138);
}

TEST_F(JobTest, APsThatReleasedAnOrphanedJobSaysWhy) {
  StartAndRun();
  JobDone done;
  done.set_message(OrphanedText("h:9", absl::Seconds(3)));
  done.set_released(true);
  job_.OnDone(kPs, done, now_, &actions_);
  EXPECT_THAT(reason(), HasSubstr("was lost: it released the job: scheduler at "
                                  "h:9 has been out of reach for 3s"));
  EXPECT_EQ(job_.status().exit_code(), 138);
}

TEST_F(JobTest, AnOpeningThatAnAbsentSchedulerEndedIsWorthARetry) {
  Start();
  Prepare(kPs, {absl::StrCat("stopped while its shard was opened: ",
                             OrphanedText("h:9", absl::Seconds(3)))});
  Tick(absl::Seconds(3));
  EXPECT_EQ(state(), FAILED);
  EXPECT_EQ(job_.status().exit_code(), 138);
}

TEST_F(JobTest, ALossAfterTheWorkIsDoneDoesNotUndoIt) {
  StartAndRun();
  Done(kChief);
  Done(kWorker);
  Gone(kPs, "stream closed");
  Gone(kChief);
  Gone(kWorker, "did not release");
  EXPECT_EQ(state(), SUCCEEDED);
}

TEST_F(JobTest, TheTimeLimitIsNamed) {
  StartAndRun();
  Tick(absl::Seconds(101));
  EXPECT_EQ(state(), FAILED);
  EXPECT_THAT(reason(), HasSubstr("limits.max_seconds"));
  EXPECT_EQ(job_.status().exit_code(), 1);
}

// One member of the pair then reports that another member has not come. The
// cause is reported first.
TEST_F(JobTest, APairThatIsApartIsNamed) {
  StartAndRun();
  const auto report = [&](double seconds) {
    PeerUnreachable unreachable;
    unreachable.mutable_peer()->set_incarnation(kPs);
    unreachable.set_seconds(seconds);
    unreachable.set_error("connection refused");
    job_.OnUnreachable(kWorker, unreachable, now_);
  };
  report(5);
  Tick(absl::Seconds(2));
  EXPECT_EQ(state(), RUNNING);
  Done(kChief, kDeadlineExceeded, "missing: worker:4");
  EXPECT_EQ(state(), RUNNING) << "a loss may still be noticed";
  Tick(absl::Seconds(2));
  EXPECT_EQ(state(), FAILED);
  EXPECT_EQ(job_.status().exit_code(), 138);
  EXPECT_THAT(
      reason(),
      AllOf(HasSubstr("worker 4 at h:1 cannot reach ps 7 at h:1 since "),
            HasSubstr("connection refused"), HasSubstr("missing: worker:4")));
}

TEST_F(JobTest, APairThatStaysApartFailsTheJob) {
  StartAndRun();
  // limits.step_timeout_seconds is 60: a network that is back by then is none
  // of the job's business.
  for (int seconds = 2; seconds <= 60; seconds += 2) {
    ASSERT_EQ(state(), RUNNING) << seconds;
    PeerUnreachable unreachable;
    unreachable.mutable_peer()->set_incarnation(kPs);
    unreachable.set_seconds(seconds);
    job_.OnUnreachable(kWorker, unreachable, now_);
    Tick(absl::Seconds(2));
  }
  EXPECT_EQ(state(), FAILED);
  EXPECT_EQ(job_.status().exit_code(), 138);
  EXPECT_THAT(reason(), HasSubstr("worker 4 at h:1 cannot reach ps 7 at h:1"));
}

TEST_F(JobTest, OnlyMembersOfTheJobCanBeOutOfReach) {
  StartAndRun();
  PeerUnreachable unreachable;
  unreachable.mutable_peer()->set_incarnation(12345);
  unreachable.set_seconds(1000);
  job_.OnUnreachable(kWorker, unreachable, now_);
  unreachable.mutable_peer()->set_incarnation(kPs);
  job_.OnUnreachable(/*session=*/99, unreachable, now_);
  Tick(absl::Seconds(1));
  EXPECT_EQ(state(), RUNNING);
}

// Its step time-out is the default, so its limit is ten minutes.
TEST_F(JobTest, AChiefThatHangsAfterItsLastClockFailsTheJob) {
  StoredJob stored = Stored();
  stored.status.mutable_spec()->mutable_limits()->clear_max_seconds();
  Job job(std::move(stored),
          {.prepare_timeout = absl::Seconds(60), .grace = absl::Seconds(2)});
  job.Start({At(kChief, CHIEF, 0)}, {At(kPs, PS, 7)}, std::nullopt, "secret",
            now_, &actions_);
  JobPrepared prepared;
  prepared.set_clocks_total(9);
  job.OnPrepared(kChief, prepared, now_, &actions_);
  job.OnPrepared(kPs, JobPrepared(), now_, &actions_);
  WorkerReport report;
  report.mutable_progress()->set_clock(9);
  job.OnReport(kChief, report, now_, &actions_);
  // Its results may take much longer, while it says that they come forward.
  const auto says = [&](const std::string& activity) {
    WorkerReport said;
    said.set_activity(activity);
    job.OnReport(kChief, said, now_, &actions_);
  };
  for (int i = 1; i <= 10; ++i) {
    says(absl::StrCat("writing trained.onnx, ", i, " bytes so far"));
    now_ += absl::Minutes(10);
    job.OnTick(now_, &actions_);
    ASSERT_EQ(job.status().state(), RUNNING);
  }
  EXPECT_THAT(job.status().waiting_for(),
              HasSubstr("writing trained.onnx, 10 bytes so far"));
  says("writing trained.onnx, 10 bytes so far");
  now_ += absl::Seconds(1);
  job.OnTick(now_, &actions_);
  ASSERT_EQ(job.status().state(), FAILED);
  EXPECT_EQ(job.status().exit_code(), 138);
  EXPECT_THAT(
      job.status().transitions().rbegin()->reason(),
      AllOf(HasSubstr("chief 0 at h:1 has not come forward for 601.0 s"),
            HasSubstr("it has closed clock 9, its last one, but is not done"),
            HasSubstr("it said last: writing trained.onnx, 10 bytes so far"),
            HasSubstr("the limit is 600.0 s")));
}

// A job of a chief and a ps whose chief may stand still for 10 s.
class StandstillTest : public JobTest {
 protected:
  StandstillTest()
      : chiefs_(Impatient(), {.prepare_timeout = absl::Seconds(60),
                              .grace = absl::Seconds(2)}) {
    chiefs_.Start({At(kChief, CHIEF, 0)}, {At(kPs, PS, 7)}, std::nullopt,
                  "secret", now_, &actions_);
    JobPrepared prepared;
    prepared.set_clocks_per_epoch(100);
    prepared.set_clocks_total(100);
    chiefs_.OnPrepared(kChief, prepared, now_, &actions_);
    chiefs_.OnPrepared(kPs, JobPrepared(), now_, &actions_);
  }
  static StoredJob Impatient() {
    StoredJob stored = Stored();
    stored.status.mutable_spec()->mutable_limits()->set_max_seconds(0);
    stored.status.mutable_spec()->mutable_limits()->set_step_timeout_seconds(1);
    return stored;
  }
  void Pass(absl::Duration time) {
    now_ += time;
    chiefs_.OnTick(now_, &actions_);
  }

  Job chiefs_;
};

TEST_F(StandstillTest, AWorkerThatStandsStillFailsTheJob) {
  WorkerReport report;
  report.mutable_progress()->set_clock(3);
  chiefs_.OnReport(kChief, report, now_, &actions_);
  Pass(absl::Seconds(10));
  EXPECT_EQ(chiefs_.status().state(), RUNNING);
  Pass(absl::Seconds(1));
  EXPECT_EQ(chiefs_.status().state(), FAILED);
  EXPECT_EQ(chiefs_.status().exit_code(), 138);
  EXPECT_THAT(chiefs_.status().transitions().rbegin()->reason(),
              AllOf(HasSubstr("chief 0 at h:1"), HasSubstr("clock 3")));
}

// A daemon says its evaluations again each time that its stream has broken.
TEST_F(StandstillTest, AnEvaluationIsProgressOnce) {
  WorkerReport report;
  report.mutable_evaluation()->set_epoch(1);
  Pass(absl::Seconds(6));
  chiefs_.OnReport(kChief, report, now_, &actions_);
  Pass(absl::Seconds(6));
  EXPECT_EQ(chiefs_.status().state(), RUNNING);
  report.mutable_progress()->set_clock(0);
  chiefs_.OnReport(kChief, report, now_, &actions_);
  Pass(absl::Seconds(5));
  EXPECT_EQ(chiefs_.status().state(), FAILED);
}

TEST_F(JobTest, AReasonIsUtf8) {
  Start();
  Gone(kWorker, "\xe4 is Latin-1");
  EXPECT_THAT(reason(), HasSubstr("\\xe4 is Latin-1"));
}

// A record that is cut within a character cannot be parsed.
TEST_F(JobTest, ALongReasonIsCutBetweenCharacters) {
  for (const char* padding : {"", "x"}) {
    Job job(Stored(),
            {.prepare_timeout = absl::Seconds(60), .grace = absl::Seconds(2)});
    std::string reason = padding;
    for (int i = 0; i < 10'000; ++i) reason += "\u00e9";
    job.Fail(reason, 1, now_, &actions_);
    JobStatus read;
    ASSERT_TRUE(read.ParseFromString(job.status().SerializeAsString()));
    EXPECT_THAT(read.transitions(1).reason(),
                ::testing::EndsWith("\u00e9 ..."));
  }
}

}  // namespace
}  // namespace syncline::scheduler
