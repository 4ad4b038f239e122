// Attempts of a job that asks for restarts. The simulation of the cluster
// has what follows for its members.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/exit_codes.h"
#include "common/job/checkpoint_trouble.h"
#include "common/job/restart_validator.h"
#include "common/regime/job_regimes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/core/job/job.h"
#include "tests/unit/scheduler/core/job/job_fixture.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// There is a second attempt, and no third one.
RestartSpec Once() {
  RestartSpec restart;
  restart.set_max(1);
  return restart;
}

class JobAttemptTest : public JobTest {
 protected:
  JobAttemptTest() : JobTest(Once()) {}

  void Evaluate(uint32_t epoch, int64_t clock) {
    WorkerReport report;
    report.mutable_evaluation()->set_epoch(epoch);
    report.mutable_evaluation()->set_clock(clock);
    job_.OnReport(kChief, report, now_, &actions_);
  }
  JobAssignment Assigned() const {
    JobAssignment assignment;
    for (const ClusterAction& action : actions_) {
      auto* send = std::get_if<SendCommand>(&action);
      if (send != nullptr && send->message.has_prepare()) {
        assignment = send->message.prepare().assignment();
      }
    }
    return assignment;
  }
  void Checkpoint(int64_t clock, const std::vector<std::string>& deleted = {}) {
    WorkerReport report;
    report.mutable_checkpoint()->set_path(absl::StrCat("/c/", clock));
    report.mutable_checkpoint()->set_clock(clock);
    report.mutable_deleted_checkpoints()->Add(deleted.begin(), deleted.end());
    job_.OnReport(kChief, report, now_, &actions_);
  }
  // The first attempt fails after a checkpoint at clock 20, and its members
  // leave.
  void FailOnce() {
    StartAndRun();
    Checkpoint(20);
    Gone(kWorker, "stream closed");
    Gone(kChief);
    Gone(kPs);
  }
};

TEST_F(JobAttemptTest, ALostMemberEndsTheAttemptAndNotTheJob) {
  StartAndRun();
  EXPECT_EQ(Assigned().attempt(), 1u);
  EXPECT_EQ(Assigned().start_clock(), 0);
  EXPECT_FALSE(Assigned().has_start_from());
  Checkpoint(20);
  Gone(kWorker, "stream closed");
  EXPECT_EQ(state(), QUEUED);
  EXPECT_FALSE(job_.TakeFailure());
  EXPECT_THAT(reason(),
              AllOf(HasSubstr("worker 4 at h:1 (incarnation"),
                    HasSubstr("was lost: stream closed; last clock 20"),
                    HasSubstr("; attempt 2 goes on from the checkpoint at "
                              "clock 20 (restart 1 of at most 1 within 1h)")));
  EXPECT_TRUE(job_.stopping());  // its members are told to stop
  EXPECT_THAT(job_.StopReason(), HasSubstr("was lost: stream closed"));
  EXPECT_THAT(job_.status().waiting_for(), HasSubstr("members of attempt 1"));
  Gone(kChief);
  EXPECT_FALSE(job_.IsWaiting());
  Gone(kPs);
  EXPECT_TRUE(job_.IsWaiting());
  EXPECT_FALSE(job_.stopping());
  EXPECT_TRUE(job_.Participants().empty());
}

TEST_F(JobAttemptTest, TheNextOneHasItsNumberSecretAndClock) {
  FailOnce();
  const JobPass first = job_.pass();
  job_.Start({At(kChief, CHIEF, 0)}, {At(kPs, PS, 7)}, std::nullopt, "other",
             now_, &actions_);
  EXPECT_EQ(state(), PREPARING);
  EXPECT_THAT(reason(),
              HasSubstr(", attempt 2, from the checkpoint at clock 20"));
  const JobAssignment assignment = Assigned();
  EXPECT_EQ(assignment.attempt(), 2u);
  EXPECT_EQ(assignment.job_secret(), "other");
  EXPECT_EQ(assignment.start_clock(), 20);
  EXPECT_EQ(assignment.start_from().path(), "/c/20");
  EXPECT_EQ(assignment.start_from().attempt(), 1u);
  EXPECT_EQ(assignment.workers_size(), 1);
  EXPECT_EQ(job_.status().workers_size(), 1);
  EXPECT_NE(first.secret, job_.pass().secret);
  EXPECT_TRUE(job_.IsOfAttempt(2));
  EXPECT_FALSE(job_.IsOfAttempt(1));
  EXPECT_FALSE(job_.IsOfAttempt(0));
}

TEST_F(JobAttemptTest, TheSecretIsInNoStatus) {
  StartAndRun();
  EXPECT_EQ(Assigned().job_secret(), "secret");
  EXPECT_EQ(job_.status().SerializeAsString().find("secret"),
            std::string::npos);
  EXPECT_EQ(job_.Status(now_).SerializeAsString().find("secret"),
            std::string::npos);
}

TEST_F(JobAttemptTest, WhatCameAfterTheClockIsForgotten) {
  StartAndRun();
  Evaluate(1, 10);
  Evaluate(2, 20);
  Checkpoint(20);
  Evaluate(3, 30);
  Done(kWorker);
  ASSERT_EQ(job_.status().done_ranks_size(), 1);
  Gone(kPs, "silent");
  EXPECT_EQ(job_.status().done_ranks_size(), 0);
  ASSERT_EQ(job_.status().evaluations_size(), 2);
  EXPECT_EQ(job_.status().evaluations(1).clock(), 20);
  // Late words of its members.
  Evaluate(4, 40);
  Report(kChief, 40);
  Done(kChief, kUnavailable, "the ps does not answer");
  EXPECT_EQ(state(), QUEUED);
  EXPECT_EQ(job_.status().evaluations_size(), 2);
  EXPECT_EQ(job_.status().checkpoints_size(), 1);
}

// The files of the best one so far were with a member that has left.
TEST_F(JobAttemptTest, TheBestEvaluationIsOneOfTheLastAttempt) {
  StartAndRun();
  WorkerReport report;
  report.mutable_evaluation()->set_epoch(1);
  report.mutable_evaluation()->set_clock(10);
  report.mutable_evaluation()->set_best(true);
  job_.OnReport(kChief, report, now_, &actions_);
  Checkpoint(20);
  Gone(kPs, "silent");
  EXPECT_THAT(reason(),
              HasSubstr("\nwarning: best.onnx will be the best from"));
  ASSERT_EQ(job_.status().evaluations_size(), 1);
  EXPECT_FALSE(job_.status().evaluations(0).best());
}

TEST_F(JobAttemptTest, ThereIsAnEndToAttempts) {
  FailOnce();
  Start();
  for (const SessionId session : {kChief, kWorker, kPs}) Prepare(session);
  EXPECT_EQ(state(), RUNNING);
  Report(kWorker, 30);
  Gone(kWorker, "stream closed");
  EXPECT_EQ(state(), FAILED);
  EXPECT_THAT(reason(),
              HasSubstr("not restarted: restart.max allows 1 within"));
  EXPECT_EQ(job_.status().exit_code(), kExitRetryable);
  EXPECT_TRUE(job_.TakeFailure());
}

TEST_F(JobAttemptTest, WithoutACheckpointItBeginsAnewAndSaysSo) {
  StartAndRun();
  Gone(kWorker, "stream closed");
  EXPECT_THAT(reason(), HasSubstr("; attempt 2 goes on from clock 0 and the "
                                  "initial values: there is no checkpoint ("));
}

TEST_F(JobAttemptTest, CheckpointsAreInTheRecordUntilTheyAreDeleted) {
  StartAndRun();
  Checkpoint(20);
  actions_.clear();
  Checkpoint(40);
  ASSERT_FALSE(actions_.empty());
  const auto* const persist = std::get_if<PersistJob>(&actions_[0]);
  ASSERT_NE(persist, nullptr);
  EXPECT_TRUE(persist->durable) << "the next attempt starts from it";
  Checkpoint(40);  // a repeat
  Checkpoint(60, {"/c/20", "/c/60", "/c/7"});
  ASSERT_EQ(job_.status().checkpoints_size(), 2);
  EXPECT_EQ(job_.status().checkpoints(0).path(), "/c/40");
  EXPECT_EQ(job_.status().checkpoints(1).path(), "/c/60");
}

TEST_F(JobAttemptTest, ACheckpointThatFailsIsToldUntilOneIsWhole) {
  StartAndRun();
  WorkerReport report;
  report.set_activity("no checkpoint: at clock 20: ps:0 at h:1: disk full");
  job_.OnReport(kChief, report, now_, &actions_);
  EXPECT_EQ(job_.status().waiting_for(),
            "no checkpoint: at clock 20: ps:0 at h:1: disk full");
  report.set_activity("storing trained.onnx");
  job_.OnReport(kWorker, report, now_, &actions_);
  EXPECT_EQ(job_.status().waiting_for(),
            "worker 4 at h:1: storing trained.onnx; no checkpoint: at clock "
            "20: ps:0 at h:1: disk full");
  Checkpoint(40);
  EXPECT_EQ(job_.status().waiting_for(),
            "worker 4 at h:1: storing trained.onnx");
}

TEST_F(JobAttemptTest, NothingWaitsForACheckpoint) {
  StartAndRun();
  WorkerReport report;
  report.set_activity("no checkpoint: at clock 20: disk full");
  job_.OnReport(kChief, report, now_, &actions_);
  Gone(kWorker, "stream closed");
  EXPECT_THAT(reason(), Not(HasSubstr("disk full")));
}

TEST_F(JobAttemptTest, ADamagedCheckpointGivesWayToTheOneBefore) {
  const std::string torn = absl::StrCat(": ", kDamagedCheckpoint, ": torn");
  StartAndRun();
  Checkpoint(20);
  Checkpoint(40);
  Gone(kWorker, "stream closed");
  Gone(kChief);
  Gone(kPs);
  Start();
  EXPECT_EQ(Assigned().start_from().path(), "/c/40");
  Prepare(kChief);
  Prepare(kWorker);
  Prepare(kPs, {"job j: checkpoint /c/40" + torn});
  EXPECT_EQ(state(), QUEUED);
  EXPECT_THAT(reason(),
              AllOf(HasSubstr("warning: the checkpoint in /c/40 cannot be "
                              "read: ps 7 at h:1: job j: checkpoint /c/40"),
                    HasSubstr("goes on from the checkpoint at clock 20")));
  for (const SessionId session : {kChief, kWorker, kPs}) Gone(session);
  Start();
  EXPECT_EQ(Assigned().start_clock(), 20);
  // There is none before this one.
  Prepare(kPs, {"job j: checkpoint /c/20" + torn});
  Prepare(kChief);
  Prepare(kWorker);
  EXPECT_EQ(state(), FAILED);
  EXPECT_EQ(job_.status().exit_code(), kExitFailed);
}

TEST_F(JobAttemptTest, OtherProblemsAreNoReasonToGoBack) {
  StartAndRun();
  Checkpoint(20);
  Checkpoint(40);
  Gone(kWorker, "stream closed");
  Gone(kChief);
  Gone(kPs);
  Start();
  Prepare(kPs, {absl::StrCat("checkpoint /c/40: ", kDamagedCheckpoint)});
  Prepare(kChief, {"data.train: no file"});
  Prepare(kWorker);
  EXPECT_EQ(state(), FAILED);
  EXPECT_EQ(job_.status().checkpoints_size(), 2);
}

// It says nothing of the checkpoint that one ps lacks a disk or memory.
TEST_F(JobAttemptTest, ACheckpointThatAPsDoesNotSeeStaysInTheRecord) {
  RestartSpec twice;
  twice.set_max(2);
  Job job(Stored(twice), Options());
  const auto start = [&] {
    job.Start({At(kChief, CHIEF, 0)}, {At(kPs, PS, 7)}, std::nullopt, "s", now_,
              &actions_);
  };
  const auto prepare = [&](const std::string& problem) {
    JobPrepared prepared;
    job.OnPrepared(kChief, prepared, now_, &actions_);
    if (!problem.empty()) prepared.add_problems(problem);
    job.OnPrepared(kPs, prepared, now_, &actions_);
  };
  const auto leave = [&] {
    for (const SessionId session : {kChief, kPs}) {
      job.OnGone(session, "", now_, &actions_);
    }
  };
  const std::string unseen = absl::StrCat(
      "job j, ps:0: checkpoint /c/40: ", kUnseenCheckpoint, ": no such file");
  start();
  prepare("");
  for (const int64_t clock : {20, 40}) {
    WorkerReport report;
    report.mutable_checkpoint()->set_path(absl::StrCat("/c/", clock));
    report.mutable_checkpoint()->set_clock(clock);
    job.OnReport(kChief, report, now_, &actions_);
  }
  leave();
  start();
  prepare(unseen);
  EXPECT_EQ(job.status().state(), QUEUED);
  EXPECT_THAT(job.status().transitions().rbegin()->reason(),
              AllOf(HasSubstr("ps 7 at h:1: job j, ps:0: checkpoint /c/40: "
                              "this member cannot see the checkpoint"),
                    HasSubstr("goes on from the checkpoint at clock 40 "
                              "(restart 2 of at most 2 within 1h)")));
  leave();
  start();
  prepare(unseen);
  EXPECT_EQ(job.status().state(), FAILED);
  EXPECT_EQ(job.status().exit_code(), kExitRetryable);
  EXPECT_THAT(job.status().transitions().rbegin()->reason(),
              HasSubstr("not restarted: restart.max allows 2 within"));
  EXPECT_EQ(job.status().checkpoints_size(), 2);
}

// The scheduler was away when later ones were made, and the one that it knows
// was deleted for them.
TEST_F(JobAttemptTest, LaterCheckpointsThatAreFoundAreGoneOnFrom) {
  StartAndRun();
  Checkpoint(20);
  Checkpoint(40);
  for (const SessionId session : {kWorker, kChief, kPs}) Gone(session, "dead");
  Start();
  ASSERT_EQ(Assigned().start_clock(), 40);
  JobPrepared prepared;
  prepared.add_problems(absl::StrCat("job j, ps:0: checkpoint /c/40: /c",
                                     kDeletedCheckpoint, "40: it was deleted"));
  for (const int64_t clock : {60, 80}) {
    CheckpointInfo* const found = prepared.add_found()->mutable_checkpoint();
    found->set_path(absl::StrCat("/c/", clock));
    found->set_clock(clock);
    found->set_attempt(5);
  }
  job_.OnPrepared(kPs, prepared, now_, &actions_);
  Prepare(kChief);
  Prepare(kWorker);
  // No restart is left, and none is needed.
  EXPECT_EQ(state(), QUEUED) << reason();
  EXPECT_THAT(reason(),
              AllOf(HasSubstr("warning: the checkpoint in /c/40 is gone, and "
                              "later ones are there: ps 7"),
                    HasSubstr("goes on from the checkpoint at clock 80 (the "
                              "last one there)")));
  EXPECT_EQ(job_.status().checkpoints_size(), 2);
  EXPECT_EQ(job_.status().progress().clock(), 80);
  for (const SessionId session : {kWorker, kChief, kPs}) Gone(session);
  // Likewise with a scheduler that begins with this record.
  StoredJob record = Stored();
  record.status = job_.Record(now_).status;
  Job next(record, Options());
  next.Start({At(kChief, CHIEF, 0)}, {At(kPs, PS, 7)}, std::nullopt, "s", now_,
             &actions_);
  EXPECT_EQ(next.status().attempt(), 6u);
  Start();
  EXPECT_EQ(Assigned().start_clock(), 80);
  EXPECT_EQ(Assigned().start_from().path(), "/c/80");
  EXPECT_EQ(Assigned().attempt(), 6u) << "behind that of the checkpoint";
  for (const SessionId session : {kChief, kWorker, kPs}) Prepare(session);
  EXPECT_EQ(state(), RUNNING);
}

// Resumed by hand, a job that fails for something else has them, too.
TEST_F(JobAttemptTest, FoundCheckpointsStayWithAJobThatFails) {
  StartAndRun();
  Checkpoint(20);
  for (const SessionId session : {kWorker, kChief, kPs}) Gone(session, "dead");
  Start();
  JobPrepared prepared;
  prepared.add_problems(absl::StrCat("checkpoint /c/20: /c", kDeletedCheckpoint,
                                     "20: it was deleted"));
  CheckpointInfo* const found = prepared.add_found()->mutable_checkpoint();
  found->set_path("/c/60");
  found->set_clock(60);
  found->set_attempt(1);
  job_.OnPrepared(kPs, prepared, now_, &actions_);
  Prepare(kChief, {"data.train: no file"});
  Prepare(kWorker);
  EXPECT_EQ(state(), FAILED);
  ASSERT_EQ(job_.status().checkpoints_size(), 1);
  EXPECT_EQ(job_.status().checkpoints(0).clock(), 60);
}

TEST_F(JobAttemptTest, WithFoldersOfTheirOwnAllPsMustHaveFoundIt) {
  Job job(Stored(Once()), Options());
  const SessionId second = 4;
  const auto start = [&] {
    job.Start({At(kChief, CHIEF, 0)}, {At(kPs, PS, 7), At(second, PS, 8)},
              std::nullopt, "s", now_, &actions_);
  };
  start();
  for (const SessionId session : {kChief, kPs, second}) {
    job.OnPrepared(session, {}, now_, &actions_);
  }
  WorkerReport report;
  report.mutable_checkpoint()->set_path("/c/20");
  report.mutable_checkpoint()->set_clock(20);
  job.OnReport(kChief, report, now_, &actions_);
  for (const SessionId session : {kChief, kPs, second}) {
    job.OnGone(session, "dead", now_, &actions_);
  }
  start();
  JobPrepared prepared;
  CheckpointInfo* const found = prepared.add_found()->mutable_checkpoint();
  found->set_path("/c/60");
  found->set_clock(60);
  found->set_attempt(1);
  prepared.add_problems(absl::StrCat("checkpoint /c/20: /c", kDeletedCheckpoint,
                                     "20: it was deleted"));
  job.OnPrepared(kChief, {}, now_, &actions_);
  job.OnPrepared(kPs, prepared, now_, &actions_);
  job.OnPrepared(second, {}, now_, &actions_);
  EXPECT_EQ(job.status().state(), FAILED);
  EXPECT_EQ(job.status().exit_code(), kExitRetryable);
  ASSERT_EQ(job.status().checkpoints_size(), 1);
  EXPECT_EQ(job.status().checkpoints(0).clock(), 20);
}

TEST_F(JobAttemptTest, APsWithoutRoomCostsNoCheckpoint) {
  StartAndRun();
  Checkpoint(20);
  Checkpoint(40);
  for (const SessionId session : {kWorker, kChief, kPs}) Gone(session, "dead");
  Start();
  Prepare(kPs, {"checkpoint /c/40: table 'emb': --table-memory has no room"});
  Prepare(kChief);
  Prepare(kWorker);
  EXPECT_EQ(state(), FAILED);
  EXPECT_EQ(job_.status().exit_code(), kExitFailed);
  EXPECT_EQ(job_.status().checkpoints_size(), 2);
}

TEST_F(JobAttemptTest, APermanentFaultIsNotTriedAgain) {
  StartAndRun();
  Done(kWorker, /*code=*/3, "loss is NaN");
  EXPECT_EQ(state(), FAILED);
}

TEST_F(JobAttemptTest, AnAbandonedOneCanBeCancelled) {
  StartAndRun();
  Gone(kWorker, "stream closed");
  job_.Cancel("", now_, &actions_);
  EXPECT_EQ(state(), CANCELLED);
  EXPECT_TRUE(job_.stopping());
  Gone(kChief);
  Gone(kPs);
  EXPECT_EQ(state(), CANCELLED);
  EXPECT_FALSE(job_.IsWaiting());
}

TEST_F(JobAttemptTest, TheLimitOfTimeCountsFromTheFirst) {
  StartAndRun();
  Tick(absl::Seconds(60));
  Gone(kWorker, "stream closed");
  Gone(kChief);
  Gone(kPs);
  Start();
  Tick(absl::Seconds(41));
  EXPECT_EQ(state(), FAILED);
  EXPECT_THAT(reason(), HasSubstr("limits.max_seconds"));
}

TEST_F(JobAttemptTest, ARestartedSchedulerGoesOnWithTheNext) {
  StartAndRun();
  Checkpoint(20);
  StoredJob stored = Stored();
  stored.status = job_.status();
  Job restarted(stored, Options());
  restarted.OnRestart(now_, &actions_);
  EXPECT_TRUE(restarted.IsWaiting());
  EXPECT_EQ(restarted.restart_time(), now_ + absl::Seconds(1));
  // The next scheduler knows it all, too.
  stored.status = restarted.status();
  Job again(stored, Options());
  EXPECT_EQ(again.restart_time(), now_ + absl::Seconds(1));
  again.Start({At(kChief, CHIEF, 0)}, {At(kPs, PS, 7)}, std::nullopt, "third",
              now_, &actions_);
  EXPECT_EQ(Assigned().attempt(), 2u);
  EXPECT_EQ(Assigned().start_clock(), 20);
}

// Else the next attempt would start from one that has been deleted.
TEST_F(JobAttemptTest, CheckpointsMadeWhileTheSchedulerWasAwayCount) {
  StartAndRun();
  Checkpoint(20);
  StoredJob stored = Stored(Once());
  stored.status = job_.status();
  Job restarted(stored, Options());
  restarted.OnRestart(now_, &actions_);
  ASSERT_TRUE(restarted.IsWaiting());
  WorkerReport report;
  report.set_attempt(1);
  report.mutable_checkpoint()->set_clock(40);
  report.mutable_checkpoint()->set_path("/c/40");
  report.add_deleted_checkpoints("/c/20");
  Member chief = At(kChief, CHIEF, 0).member;
  Member other = At(kWorker, WORKER, 4).member;
  other.set_pid(7);
  restarted.OnLateReport(other, report, now_, &actions_);
  EXPECT_EQ(restarted.status().checkpoints(0).clock(), 20) << "not the chief";
  report.set_attempt(2);
  restarted.OnLateReport(chief, report, now_, &actions_);
  EXPECT_EQ(restarted.status().checkpoints(0).clock(), 20)
      << "not that attempt";
  report.set_attempt(1);
  restarted.OnLateReport(chief, report, now_, &actions_);
  ASSERT_EQ(restarted.status().checkpoints_size(), 1);
  EXPECT_EQ(restarted.status().checkpoints(0).clock(), 40);
  EXPECT_EQ(restarted.status().progress().clock(), 40);
  // The next attempt prepares already: what it starts from may be gone.
  restarted.Start({At(kChief, CHIEF, 0)}, {At(kPs, PS, 7)}, std::nullopt, "s",
                  now_, &actions_);
  EXPECT_EQ(Assigned().start_clock(), 40);
  report.mutable_checkpoint()->set_clock(60);
  report.mutable_checkpoint()->set_path("/c/60");
  report.clear_deleted_checkpoints();
  report.add_deleted_checkpoints("/c/40");
  restarted.OnLateReport(other, report, now_, &actions_);
  EXPECT_EQ(restarted.status().checkpoints(0).clock(), 40) << "not the chief";
  restarted.OnLateReport(chief, report, now_, &actions_);
  ASSERT_EQ(restarted.status().checkpoints_size(), 1);
  EXPECT_EQ(restarted.status().checkpoints(0).clock(), 60);
  EXPECT_EQ(restarted.status().checkpoints(0).attempt(), 1u);
}

// The chief saves what it has before it leaves.
TEST_F(JobAttemptTest, TheAttemptsMembersMaySaveMoreWhileTheyLeave) {
  StartAndRun();
  Checkpoint(20);
  Evaluate(1, 20);
  Evaluate(2, 30);
  Gone(kWorker, "stream closed");
  ASSERT_EQ(state(), QUEUED);
  EXPECT_THAT(reason(), HasSubstr("attempt 2 goes on from the checkpoint at "
                                  "clock 20 (restart 1 of"));
  ASSERT_EQ(job_.status().evaluations_size(), 1);
  // One that was being made when the worker was lost.
  WorkerReport late;
  late.set_attempt(1);
  late.mutable_evaluation()->set_epoch(3);
  late.mutable_evaluation()->set_clock(36);
  job_.OnLateReport(At(kChief, CHIEF, 0).member, late, now_, &actions_);
  EXPECT_EQ(job_.status().evaluations_size(), 1);
  WorkerReport report;
  report.set_attempt(1);
  report.mutable_checkpoint()->set_clock(37);
  report.mutable_checkpoint()->set_path("/c/37");
  job_.OnLateReport(At(kChief, CHIEF, 0).member, report, now_, &actions_);
  EXPECT_THAT(reason(), HasSubstr("attempt 2 goes on from the checkpoint at "
                                  "clock 37 (restart 1 of"));
  EXPECT_EQ(job_.status().progress().clock(), 37);
  // Those up to there are not made again.
  ASSERT_EQ(job_.status().evaluations_size(), 3);
  EXPECT_EQ(job_.status().evaluations(1).clock(), 30);
  EXPECT_EQ(job_.status().evaluations(2).clock(), 36);
  EXPECT_TRUE(job_.status().evaluations(2).has_time());
  Gone(kChief);
  Gone(kPs);
  job_.Start({At(kChief, CHIEF, 0)}, {At(kPs, PS, 7)}, std::nullopt, "other",
             now_, &actions_);
  EXPECT_EQ(Assigned().start_clock(), 37);
}

// A checkpoint of a regime that the record does not have.
TEST_F(JobAttemptTest, LateCheckpointsBehindAnUnknownChangeDoNotCount) {
  StartAndRun();
  Checkpoint(20);
  Gone(kWorker, "stream closed");
  const Member chief = At(kChief, CHIEF, 0).member;
  WorkerReport failed;
  failed.set_attempt(1);
  failed.mutable_regime()->mutable_regime()->set_first_clock(30);
  failed.mutable_regime()->set_error("no memory");
  job_.OnLateReport(chief, failed, now_, &actions_);
  WorkerReport report;
  report.set_attempt(1);
  report.mutable_checkpoint()->set_clock(40);
  report.mutable_checkpoint()->set_path("/c/40");
  job_.OnLateReport(chief, report, now_, &actions_);
  EXPECT_EQ(job_.status().checkpoints().rbegin()->clock(), 40);
  WorkerReport change = failed;
  change.mutable_regime()->clear_error();
  job_.OnLateReport(chief, change, now_, &actions_);
  report.mutable_checkpoint()->set_clock(60);
  report.mutable_checkpoint()->set_path("/c/60");
  job_.OnLateReport(chief, report, now_, &actions_);
  EXPECT_EQ(job_.status().checkpoints().rbegin()->clock(), 40);
}

// A chief that registers again repeats reports.
TEST_F(JobAttemptTest, ARepeatedChangeIsNoLateOne) {
  StartAndRun();
  Checkpoint(20);
  WorkerReport change;
  change.set_attempt(1);
  RegimeTransition& made = *change.mutable_regime();
  *made.mutable_regime() = RegimeOf(job_.status().spec());
  made.mutable_regime()->set_first_clock(30);
  made.set_reason("synctl regime");
  made.mutable_time()->set_seconds(5);
  job_.OnReport(kChief, change, now_, &actions_);
  Gone(kWorker, "stream closed");
  const Member chief = At(kChief, CHIEF, 0).member;
  job_.OnLateReport(chief, change, now_, &actions_);
  WorkerReport report;
  report.set_attempt(1);
  report.mutable_checkpoint()->set_clock(40);
  report.mutable_checkpoint()->set_path("/c/40");
  job_.OnLateReport(chief, report, now_, &actions_);
  EXPECT_EQ(job_.status().checkpoints().rbegin()->clock(), 40);
}

// The attempt that prepares has gone back behind a change that was known.
TEST_F(JobAttemptTest, LateCheckpointsBehindALostChangeDoNotCount) {
  StartAndRun();
  Checkpoint(20);
  WorkerReport change;
  RegimeTransition& made = *change.mutable_regime();
  *made.mutable_regime() = RegimeOf(job_.status().spec());
  made.mutable_regime()->set_first_clock(30);
  made.set_reason("synctl regime");
  job_.OnReport(kChief, change, now_, &actions_);
  ASSERT_GT(job_.status().regimes_size(), 1);
  for (const SessionId gone : {kWorker, kChief, kPs}) Gone(gone, "closed");
  Start();
  ASSERT_EQ(state(), PREPARING);
  WorkerReport report;
  report.set_attempt(1);
  report.mutable_checkpoint()->set_clock(40);
  report.mutable_checkpoint()->set_path("/c/40");
  job_.OnLateReport(At(kChief, CHIEF, 0).member, report, now_, &actions_);
  EXPECT_EQ(job_.status().checkpoints().rbegin()->clock(), 20);
}

// Earlier ones may have been deleted for it.
TEST_F(JobAttemptTest, CheckpointsMadeWhileTheMembersLeaveCount) {
  StartAndRun();
  Checkpoint(20);
  Gone(kWorker, "stream closed");
  ASSERT_EQ(state(), QUEUED);
  ASSERT_FALSE(job_.IsWaiting());
  WorkerReport report;
  report.set_attempt(1);
  report.mutable_checkpoint()->set_clock(40);
  report.mutable_checkpoint()->set_path("/c/40");
  report.add_deleted_checkpoints("/c/20");
  const Member chief = At(kChief, CHIEF, 0).member;
  actions_.clear();
  job_.OnLateReport(chief, report, now_, &actions_);
  ASSERT_EQ(job_.status().checkpoints_size(), 1);
  EXPECT_EQ(job_.status().checkpoints(0).path(), "/c/40");
  EXPECT_EQ(job_.status().progress().clock(), 40);
  ASSERT_FALSE(actions_.empty());
  EXPECT_NE(std::get_if<PersistJob>(&actions_[0]), nullptr);
  EXPECT_THAT(job_.status().waiting_for(), HasSubstr("members of attempt 1"));
  Gone(kChief);
  Gone(kPs);
  Start();
  EXPECT_EQ(Assigned().start_clock(), 40);
  // Another attempt has begun.
  report.mutable_checkpoint()->set_clock(60);
  job_.OnLateReport(chief, report, now_, &actions_);
  EXPECT_EQ(job_.status().checkpoints_size(), 1);
  // A job that has ended can be resumed, so its latest one is to be known.
  job_.Cancel("", now_, &actions_);
  report.set_attempt(2);
  report.add_deleted_checkpoints("/c/40");
  report.mutable_checkpoint()->set_path("/c/60");
  job_.OnLateReport(chief, report, now_, &actions_);
  ASSERT_EQ(job_.status().checkpoints_size(), 1);
  EXPECT_EQ(job_.status().checkpoints(0).path(), "/c/60");
}

// Restarts are counted in what the record shows of them.
TEST_F(JobAttemptTest, TheLargestNumberOfRestartsHasAnEnd) {
  RestartSpec restart;
  restart.set_max(kRestartsMax);
  Job job(Stored(restart), Options());
  uint32_t attempts = 0;
  for (; attempts < 200 && !job.IsOver(); ++attempts) {
    job.Start({At(kChief, CHIEF, 0)}, {At(kPs, PS, 7)}, std::nullopt, "s", now_,
              &actions_);
    for (const SessionId session : {kChief, kPs}) {
      job.OnPrepared(session, JobPrepared(), now_, &actions_);
    }
    WorkerReport report;
    report.mutable_progress()->set_clock(attempts + 1);
    job.OnReport(kChief, report, now_, &actions_);
    for (const SessionId session : {kChief, kPs}) {
      job.OnGone(session, "stream closed", now_, &actions_);
    }
    actions_.clear();
  }
  EXPECT_EQ(job.status().state(), FAILED);
  EXPECT_EQ(attempts, kRestartsMax + 1);
}

TEST_F(JobAttemptTest, TheRecordIsBounded) {
  RestartSpec restart = Once();
  restart.set_max(1000);
  Job job(Stored(restart), Options());
  for (int attempt = 1; attempt <= 200; ++attempt) {
    job.Start({At(kChief, CHIEF, 0)}, {At(kPs, PS, 7)}, std::nullopt, "s", now_,
              &actions_);
    for (const SessionId session : {kChief, kPs}) {
      job.OnPrepared(session, JobPrepared(), now_, &actions_);
    }
    ASSERT_EQ(job.status().state(), RUNNING);
    WorkerReport report;
    report.mutable_progress()->set_clock(attempt);
    job.OnReport(kChief, report, now_, &actions_);
    for (const SessionId session : {kChief, kPs}) {
      job.OnGone(session, std::string(5000, 'x'), now_, &actions_);
    }
    actions_.clear();
  }
  EXPECT_TRUE(job.IsWaiting());
  EXPECT_EQ(job.status().attempt(), 200u);
  EXPECT_LE(job.status().transitions_size(), 300);
  EXPECT_EQ(job.status().transitions(0).reason(), "") << "the submission";
  EXPECT_LT(job.status().ByteSizeLong(), 500u << 10);
}

}  // namespace
}  // namespace syncline::scheduler
