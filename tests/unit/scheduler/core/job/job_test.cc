// Goal: a job goes forward through its states, and late messages count for
// nothing. Method: one job, two workers and a ps, messages in each order that
// matters. The parts beside: job_failure_test.cc (losses, time-outs, and the
// reason that is told), job_status_test.cc (status and evaluations),
// job_data_test.cc (the members' data compared).

#include "scheduler/core/job/job.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduler/core/job/job_fixture.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(JobTest, GoesThroughItsStates) {
  Start();
  EXPECT_EQ(state(), PREPARING);
  EXPECT_THAT(Told(SchedulerMessage::kPrepare),
              ElementsAre(kChief, kWorker, kPs));
  Prepare(kPs);
  Prepare(kPs);  // twice is once
  Prepare(kChief);
  EXPECT_EQ(state(), PREPARING);
  Prepare(kWorker);
  EXPECT_EQ(state(), RUNNING);
  EXPECT_THAT(Told(SchedulerMessage::kRun), ElementsAre(kChief, kWorker));
  Done(kWorker);
  EXPECT_FALSE(job_.stopping());
  Done(kChief);
  EXPECT_TRUE(job_.stopping());
  EXPECT_EQ(state(), RUNNING);
  Gone(kPs);
  Gone(kChief);
  EXPECT_EQ(state(), RUNNING);
  Gone(kWorker);
  EXPECT_EQ(state(), SUCCEEDED);
  EXPECT_EQ(job_.status().exit_code(), 0);
}

TEST_F(JobTest, ADoneFromAPsOrBeforeTheRunMeansNothing) {
  Start();
  Done(kChief);
  Done(kWorker);
  EXPECT_FALSE(job_.stopping());
  for (const SessionId session : {kChief, kWorker, kPs}) Prepare(session);
  Done(kPs);
  Done(kChief);
  EXPECT_FALSE(job_.stopping());
}

TEST_F(JobTest, AllProblemsOfPreparingAreTold) {
  Start();
  Prepare(kWorker, {"no file", "no gzip"});
  EXPECT_EQ(state(), PREPARING);
  Prepare(kPs);
  Prepare(kChief, {"no file"});
  EXPECT_EQ(state(), FAILED);
  EXPECT_EQ(reason(),
            "chief 0 at h:1: no file\n"
            "worker 4 at h:1: no file\nworker 4 at h:1: no gzip");
  EXPECT_EQ(job_.status().exit_code(), 1);
}

TEST_F(JobTest, AProblemDoesNotWaitForThoseWhoAreSilent) {
  Start();
  Prepare(kWorker, {"no file"});
  Tick(absl::Milliseconds(1900));
  EXPECT_EQ(state(), PREPARING);
  Tick(absl::Milliseconds(100));
  EXPECT_EQ(state(), FAILED);
  EXPECT_THAT(Told(SchedulerMessage::kRun), IsEmpty());
}

// A member that has refused the job and then stops, as an orphan, what is left
// of it.
TEST_F(JobTest, AProblemIsNotHiddenByAStop) {
  Start();
  Prepare(kWorker, {"data.train: no file"});
  Done(kWorker, static_cast<int>(absl::StatusCode::kAborted), "stopped");
  EXPECT_EQ(state(), PREPARING);
  Tick(absl::Seconds(2));
  EXPECT_EQ(state(), FAILED);
  EXPECT_EQ(reason(), "worker 4 at h:1: data.train: no file");
  EXPECT_EQ(job_.status().exit_code(), 1);
}

TEST_F(JobTest, PreparingEndsWithTheNamesOfTheMissing) {
  Start();
  Prepare(kPs);
  Tick(absl::Seconds(61));
  EXPECT_EQ(state(), FAILED);
  EXPECT_EQ(reason(),
            "not prepared within 1m: chief 0 at h:1, worker 4 at h:1");
  EXPECT_EQ(job_.status().exit_code(), 138);
}

TEST_F(JobTest, TheLossOfAWorkerThatIsDoneFailsNothing) {
  StartAndRun();
  actions_.clear();
  Done(kWorker);
  EXPECT_THAT(job_.status().done_ranks(), ElementsAre(1u));
  ASSERT_FALSE(actions_.empty());
  const auto* const persist = std::get_if<PersistJob>(&actions_[0]);
  ASSERT_NE(persist, nullptr);
  EXPECT_TRUE(persist->durable) << "a restarted scheduler knows it";
  Gone(kWorker, "stream closed");
  EXPECT_EQ(state(), RUNNING);
  EXPECT_FALSE(job_.stopping());
  EXPECT_THAT(job_.Participants(), ElementsAre(kChief, kPs));
  Done(kChief);
  EXPECT_THAT(job_.status().done_ranks(), ElementsAre(0u, 1u));
  EXPECT_TRUE(job_.stopping());
  Gone(kPs);
  Gone(kChief, "silent for 5 s");
  EXPECT_EQ(state(), SUCCEEDED);
}

TEST_F(JobTest, TheLossOfAnyOtherStillFailsIt) {
  StartAndRun();
  Done(kWorker);
  Gone(kWorker, "stream closed");
  Gone(kPs, "stream closed");
  EXPECT_EQ(state(), FAILED);
  EXPECT_THAT(reason(), HasSubstr("ps 7 at h:1"));
}

TEST_F(JobTest, WhoIsDoneCannotFailTheJob) {
  StartAndRun();
  Done(kWorker);
  Done(kWorker, 3, "told to stop");
  Done(kWorker);
  EXPECT_EQ(state(), RUNNING);
  EXPECT_THAT(job_.status().done_ranks(), ElementsAre(1u));
}

TEST_F(JobTest, ARestartFindsAJobThatWasDone) {
  StartAndRun();
  Done(kWorker);
  StoredJob half = Stored();
  half.status = job_.status();
  Done(kChief);
  StoredJob whole = Stored();
  whole.status = job_.status();
  EXPECT_EQ(whole.status.state(), RUNNING);
  const Job::Options timing = {.prepare_timeout = absl::Seconds(60),
                               .grace = absl::Seconds(2)};
  Job failed(half, timing);
  failed.OnRestart(now_, &actions_);
  EXPECT_EQ(failed.status().state(), FAILED);
  EXPECT_EQ(failed.status().exit_code(), 138);
  Job succeeded(whole, timing);
  succeeded.OnRestart(now_, &actions_);
  EXPECT_EQ(succeeded.status().state(), SUCCEEDED);
  EXPECT_EQ(succeeded.status().exit_code(), 0);
}

TEST_F(JobTest, WhileItPreparesItSaysWhoHasNotAnswered) {
  Start();
  EXPECT_EQ(job_.status().waiting_for(),
            "chief 0 at h:1; worker 4 at h:1; ps 7 at h:1");
  Prepare(kPs);
  Prepare(kChief);
  WorkerReport report;
  report.set_activity("reading data.train");
  job_.OnReport(kWorker, report, now_, &actions_);
  EXPECT_EQ(job_.status().waiting_for(), "worker 4 at h:1: reading data.train");
  Tick(absl::Seconds(61));
  EXPECT_THAT(reason(), HasSubstr("worker 4 at h:1: reading data.train"));
}

// A report that was on its way, or that a daemon repeats.
TEST_F(JobTest, NobodyWaitsForAMemberThatIsDone) {
  StartAndRun();
  Done(kWorker);
  WorkerReport report;
  report.set_activity("reading a.csv");
  job_.OnReport(kWorker, report, now_, &actions_);
  EXPECT_EQ(job_.status().waiting_for(), "");
}

TEST_F(JobTest, ItSaysWhereResultsAreThatCannotBeStored) {
  StartAndRun();
  EXPECT_EQ(job_.status().waiting_for(), "");
  Done(kWorker);
  WorkerReport report;
  report.set_activity("trained.onnx is on host a as /w/trained.onnx");
  actions_.clear();
  job_.OnReport(kChief, report, now_, &actions_);
  const std::string where =
      "chief 0 at h:1: trained.onnx is on host a as /w/trained.onnx";
  EXPECT_EQ(job_.status().waiting_for(), where);
  // As a scheduler that starts anew reads it.
  StoredJob stored = Stored();
  stored.status = job_.status();
  Job restarted(stored, {});
  restarted.OnRestart(now_, &actions_);
  EXPECT_THAT(restarted.status().transitions().rbegin()->reason(),
              HasSubstr(where));
  // Unset is "as before"; empty, that it is over.
  Report(kChief, 10);
  EXPECT_EQ(job_.status().waiting_for(), where);
  report.set_activity("");
  job_.OnReport(kChief, report, now_, &actions_);
  EXPECT_EQ(job_.status().waiting_for(), "");
  report.set_activity(std::string(5000, 'x'));
  job_.OnReport(kChief, report, now_, &actions_);
  EXPECT_LT(job_.status().waiting_for().size(), 1100u);
  Tick(absl::Seconds(101));
  EXPECT_THAT(reason(), AllOf(HasSubstr("limits.max_seconds"),
                              HasSubstr("the job waited for chief 0")));
}

TEST_F(JobTest, CancellingKeepsTheProgress) {
  StartAndRun();
  Report(kChief, 7);
  Report(kWorker, 5);
  job_.Cancel("enough", now_, &actions_);
  EXPECT_EQ(state(), CANCELLED);
  EXPECT_EQ(reason(), "enough");
  EXPECT_EQ(job_.status().progress().clock(), 5);
  Report(kChief, 9);
  Gone(kPs, "stream closed");
  EXPECT_EQ(state(), CANCELLED);
  EXPECT_EQ(job_.StopReason(), "CANCELLED: enough");
}

TEST_F(JobTest, StrangersAreIgnored) {
  StartAndRun();
  Done(99, 3, "I am not of this job");
  Gone(99, "stream closed");
  Report(99, 1);
  EXPECT_EQ(state(), RUNNING);
}

TEST_F(JobTest, AClockThatIsSetBackDoesNotTurnTheHistoryAround) {
  Start();
  now_ -= absl::Minutes(5);
  job_.Cancel("", now_, &actions_);
  const auto& transitions = job_.status().transitions();
  EXPECT_GE(transitions[2].time().seconds(), transitions[1].time().seconds());
}

TEST_F(JobTest, AnArtifactThatComesAgainReplacesTheFirst) {
  Artifact artifact;
  artifact.set_name("trained.onnx");
  artifact.set_size_bytes(1);
  job_.AddArtifact(artifact, &actions_);
  artifact.set_size_bytes(2);
  job_.AddArtifact(artifact, &actions_);
  ASSERT_EQ(job_.status().artifacts_size(), 1);
  EXPECT_EQ(job_.status().artifacts(0).size_bytes(), 2);
}

}  // namespace
}  // namespace syncline::scheduler
