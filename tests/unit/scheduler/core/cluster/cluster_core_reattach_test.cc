// Goal: a scheduler that starts anew takes up the jobs of the one before it
// where they are; members that do not come back are lost by name; what daemons
// have seen of a later state is never given again. Method: a job of one worker
// and one ps on one core, another core that begins with its record.

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/core/cluster/cluster_core.h"
#include "tests/unit/scheduler/core/cluster/cluster_core_fixture.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// A worker (session 1, incarnation 11) and a ps (2, 12).
class ClusterCoreReattachTest : public ClusterCoreAddressTest {
 protected:
  ClusterCoreReattachTest() {
    Join(1, WORKER, 0, 11);
    Answer(1, absl::OkStatus());
    Join(2, PS, 0, 12);
    Answer(2, absl::OkStatus());
  }
  void SubmitJob() { job_ = Submit(1, 1); }
  void Run() {
    SubmitJob();
    Prepared(1, job_);
    Prepared(2, job_);
    ASSERT_EQ(State(job_), RUNNING);
  }

  StoredJob Record() const {
    const Job* const job = *core_.FindJob(job_);
    JobRecord record = job->Record(now_);
    return {.status = record.status,
            .parameters = job->parameters(),
            .tables = job->tables(),
            .attempt = record.attempt};
  }
  // As if there were a second worker: index 1, incarnation 14.
  static void AddWorker(StoredJob* record) {
    JobAssignment* const assignment = record->attempt->mutable_assignment();
    Participant second = assignment->workers(0);
    second.set_rank(1);
    second.mutable_member()->mutable_task()->set_index(1);
    second.mutable_member()->set_incarnation(14);
    *assignment->add_workers() = second;
    *record->status.add_workers() = second;
  }
  // Another scheduler begins with this record of the job.
  void Restart(const StoredJob& record, uint64_t epoch = 2) {
    ClusterCore::Options options = Options();
    options.epoch = epoch;
    options.previous_epoch = 1;
    now_ += absl::Seconds(3);
    next_ = std::make_unique<ClusterCore>(options);
    actions_.clear();
    next_->Restore({record}, {}, now_, &actions_);
  }
  void Restart() { Restart(Record()); }

  Register Hello(TaskType type, uint64_t incarnation, uint32_t attempt = 1) {
    Register request;
    Member* member = request.mutable_member();
    member->mutable_task()->set_type(type);
    member->set_address("h:1");
    member->set_incarnation(incarnation);
    member->set_version("0.1.0");
    if (attempt == 0) return request;
    request.set_job_id(job_);
    request.mutable_held()->set_attempt(attempt);
    request.mutable_held()->set_clock(17);
    return request;
  }
  void Back(SessionId session, const Register& request) {
    actions_.clear();
    next_->OnRegister(session, request, now_, &actions_);
  }
  void Say(SessionId session, const DaemonMessage& message) {
    actions_.clear();
    next_->OnMessage(session, message, now_, &actions_);
  }
  DaemonMessage DoneMessage(bool released) const {
    DaemonMessage message;
    message.mutable_done()->set_job_id(job_);
    message.mutable_done()->set_attempt(1);
    message.mutable_done()->set_released(released);
    return message;
  }
  void Wait(absl::Duration time) {
    for (const absl::Time end = now_ + time; now_ < end;) {
      now_ += absl::Milliseconds(500);
      actions_.clear();
      next_->OnTick(now_, &actions_);
    }
  }
  // Gives `answer` for every address that the scheduler asks.
  void AnswerAll(const absl::Status& answer) {
    const ClusterActions asked = actions_;
    for (const ClusterAction& action : asked) {
      if (auto* confirm = std::get_if<ConfirmAddress>(&action)) {
        next_->OnAddressAnswer(confirm->session, answer, now_, &actions_);
      }
    }
  }
  const JobStatus& Status() const { return (*next_->FindJob(job_))->status(); }
  std::string Reason() const {
    return Status().transitions().rbegin()->reason();
  }
  template <typename Action>
  int Count() const {
    int count = 0;
    for (const ClusterAction& action : actions_) {
      count += std::holds_alternative<Action>(action) ? 1 : 0;
    }
    return count;
  }

  std::string job_;
  std::unique_ptr<ClusterCore> next_;
};

TEST_F(ClusterCoreReattachTest, ARunningJobGoesOnWhereItIs) {
  Run();
  Restart();
  EXPECT_EQ(Status().state(), RUNNING);
  EXPECT_EQ(Count<PersistJob>(), 0) << "nothing has changed";
  EXPECT_EQ(Count<ConfirmAddress>(), 2) << "a broken stream is no death";
  EXPECT_EQ(next_->absent_count(), 2u);
  Back(7, Hello(PS, 12));
  EXPECT_THAT(Commands(), ElementsAre("7 registered"));
  Back(8, Hello(WORKER, 11));
  EXPECT_THAT(Commands(), ElementsAre("8 registered", "8 run"));
  EXPECT_EQ(Count<MemberReattached>(), 1);
  EXPECT_EQ(next_->absent_count(), 0u);
  EXPECT_EQ((*next_->FindJob(job_))->Status(now_).progress().clock(), 17);
  EXPECT_TRUE(next_->CheckUpload(UploadOf(job_, 11)).ok()) << "same secret";
  Say(8, DoneMessage(/*released=*/false));
  EXPECT_THAT(Commands(), ElementsAre("8 stop", "7 stop"));
  Say(8, DoneMessage(/*released=*/true));
  Say(7, DoneMessage(/*released=*/true));
  EXPECT_EQ(Status().state(), SUCCEEDED);
  EXPECT_EQ(Status().attempt(), 1u);
  EXPECT_THAT(Status().transitions(), SizeIs(4));
}

TEST_F(ClusterCoreReattachTest, AJobThatIsPreparedIsPreparedFurther) {
  SubmitJob();
  Prepared(1, job_);
  Restart();
  EXPECT_EQ(Status().state(), PREPARING);
  // The worker has answered, and says so again; the ps has not been told yet.
  Back(7, Hello(WORKER, 11));
  EXPECT_THAT(Commands(), ElementsAre("7 registered"));
  DaemonMessage prepared;
  prepared.mutable_prepared()->set_job_id(job_);
  prepared.mutable_prepared()->set_attempt(1);
  Say(7, prepared);
  Back(8, Hello(PS, 12, /*attempt=*/0));
  EXPECT_THAT(Commands(), ElementsAre("8 registered", "8 prepare"));
  Say(8, prepared);
  EXPECT_EQ(Status().state(), RUNNING);
  EXPECT_THAT(Commands(), ElementsAre("7 run"));
}

TEST_F(ClusterCoreReattachTest, AJobThatEndedMeanwhileHasEnded) {
  Run();
  Restart();
  Back(7, Hello(PS, 12));
  Back(8, Hello(WORKER, 11));
  // It says again what the other scheduler did not hear.
  Say(8, DoneMessage(/*released=*/false));
  EXPECT_THAT(Status().done_ranks(), ElementsAre(0));
  EXPECT_THAT(Commands(), ElementsAre("8 stop", "7 stop"));
}

TEST_F(ClusterCoreReattachTest, AWorkerThatIsDoneMayStayAway) {
  job_ = Submit(1, 1, /*with_test=*/true);
  Join(3, EVALUATOR, 0, 13);
  Prepared(1, job_);
  Prepared(2, job_);
  ASSERT_EQ(State(job_), RUNNING);
  StoredJob record = Record();
  AddWorker(&record);  // that has not finished
  record.status.add_done_ranks(0);
  Restart(record);
  Back(7, Hello(PS, 12));
  Register hello = Hello(WORKER, 14);
  hello.mutable_member()->mutable_task()->set_index(1);
  Back(8, hello);
  for (int i = 0; i < 60; ++i) {
    DaemonMessage beat;
    beat.mutable_heartbeat();
    Say(7, beat);
    Say(8, beat);
    Wait(absl::Seconds(1));
  }
  EXPECT_EQ(Status().state(), RUNNING);
  EXPECT_EQ(next_->absent_count(), 0u);
}

TEST_F(ClusterCoreReattachTest, AWorkerThatAnEarlyEndLetGoIsStopped) {
  Run();
  StoredJob record = Record();
  AddWorker(&record);
  record.status.mutable_spec()->mutable_stop()->set_metric(LOSS);
  record.status.add_done_ranks(1);
  Restart(record);
  Back(7, Hello(WORKER, 11));
  EXPECT_THAT(Commands(), ElementsAre("7 registered", "7 run"));
  Register hello = Hello(WORKER, 14);
  hello.mutable_member()->mutable_task()->set_index(1);
  Back(8, hello);
  EXPECT_THAT(Commands(), ElementsAre("8 registered", "8 stop"));
  EXPECT_EQ(Status().state(), RUNNING) << "the chief exports";
}

TEST_F(ClusterCoreReattachTest, ACheckpointThatIsRepeatedAnswersNobody) {
  Run();
  StoredJob record = Record();
  record.status.mutable_spec()->mutable_checkpoint()->set_every_clocks(1000);
  CheckpointInfo* const known = record.status.add_checkpoints();
  known->set_path("/c/20");
  known->set_clock(20);
  known->set_attempt(1);
  Restart(record);
  const auto ask = [this] {
    return next_->TakeCheckpoint(job_, now_, &actions_).status();
  };
  Back(7, Hello(PS, 12));
  EXPECT_EQ(ask().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(ask().message()),
              HasSubstr("has not come back since the scheduler was restarted"));
  Back(8, Hello(WORKER, 11));  // its report of clock 20 is to come
  ASSERT_TRUE(ask().ok()) << ask();
  const auto whole = [this](int64_t clock) {
    DaemonMessage message;
    message.mutable_report()->set_job_id(job_);
    message.mutable_report()->set_attempt(1);
    CheckpointInfo* const info = message.mutable_report()->mutable_checkpoint();
    info->set_path(absl::StrCat("/c/", clock));
    info->set_clock(clock);
    Say(8, message);
  };
  whole(20);
  EXPECT_EQ(Count<CheckpointAnswered>(), 0);
  whole(21);
  EXPECT_EQ(Count<CheckpointAnswered>(), 1);
}

TEST_F(ClusterCoreReattachTest, AMemberThatDiedMeanwhileIsLostAtOnce) {
  Run();
  Restart();
  AnswerAll(absl::NotFoundError("connection refused"));
  EXPECT_EQ(Status().state(), FAILED);
  EXPECT_EQ(Status().exit_code(), 138);
  EXPECT_THAT(Reason(),
              AllOf(HasSubstr("0 at h:1 (incarnation 0x"),
                    HasSubstr("was lost: its process does not answer at its "
                              "address any more; the scheduler was restarted "
                              "at 1970-01-01T01:00:03Z")));
}

TEST_F(ClusterCoreReattachTest, AMemberThatDiedMeanwhileIsLostAtItsClock) {
  Run();
  StoredJob record = Record();
  ASSERT_THAT(record.status.progress().workers(), SizeIs(1));
  record.status.mutable_progress()->set_clock(240);
  record.status.mutable_progress()->mutable_workers(0)->set_clock(240);
  Restart(record);
  EXPECT_EQ((*next_->FindJob(job_))->Status(now_).progress().clock(), 240);
  AnswerAll(absl::NotFoundError("connection refused"));
  EXPECT_EQ(Status().state(), FAILED);
  EXPECT_THAT(Reason(), HasSubstr("; last clock 240"));
}

TEST_F(ClusterCoreReattachTest, AMemberThatDoesNotComeIsLostAfterTheWindow) {
  Run();
  Restart();
  Back(7, Hello(PS, 12));
  for (int i = 0; i < 29; ++i) {
    Wait(absl::Seconds(1));
    AnswerAll(i % 2 == 0 ? absl::OkStatus()
                         : absl::UnavailableError("no route to host"));
    DaemonMessage beat;
    beat.mutable_heartbeat();
    Say(7, beat);
    ASSERT_EQ(Status().state(), RUNNING) << i;
  }
  Wait(absl::Seconds(2));
  EXPECT_EQ(Status().state(), FAILED);
  EXPECT_THAT(Reason(), AllOf(HasSubstr("worker 0 at h:1"),
                              HasSubstr("has not come back within 30s of the "
                                        "restart of the scheduler at ")));
  // It comes after all, and is told to stop.
  Back(8, Hello(WORKER, 11));
  EXPECT_THAT(Commands(), ElementsAre("8 registered", "8 stop"));
}

TEST_F(ClusterCoreReattachTest, ANewcomerWaitsUntilItsTasksHolderIsKnown) {
  Run();
  Restart();
  Register other = Hello(WORKER, 99, /*attempt=*/0);
  other.mutable_member()->set_address("h:9");
  Back(7, other);
  ASSERT_THAT(Ended(), SizeIs(1));
  EXPECT_THAT(Ended()[0], AllOf(HasSubstr("worker 0 is kept for worker 0 at "),
                                HasSubstr("may still come back")));
  EXPECT_EQ(Status().state(), RUNNING);
  // Unavailable is tried again for as long as a daemon looks for a scheduler.
  EXPECT_EQ(std::get<EndSession>(actions_[0]).status.code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(ClusterCoreReattachTest, AProcessWithAnotherAttemptIsNotResumed) {
  Run();
  Restart();
  Back(7, Hello(WORKER, 11, /*attempt=*/2));
  EXPECT_EQ(Status().state(), FAILED);
  EXPECT_THAT(Reason(), HasSubstr("it came back, but has attempt 2 of job "));
  EXPECT_THAT(Commands(), ElementsAre(HasSubstr(" stop"),  // the absent ps
                                      "7 registered", "7 stop"));
  // The ps comes back as it was, but too late.
  Back(8, Hello(PS, 12));
  EXPECT_THAT(Commands(), ElementsAre("8 registered", "8 stop"));
  const auto events = next_->Events(job_, 0);
  ASSERT_TRUE(events.ok()) << events.status();
  ASSERT_FALSE(events->events.empty());
  EXPECT_THAT(events->events.back().event.text(),
              HasSubstr("it came back, but job j-0001 is being stopped; the "
                        "scheduler was restarted at "));
}

TEST_F(ClusterCoreReattachTest, AShutdownReachesThoseThatComeBackLater) {
  Run();
  Restart();
  next_->Shutdown(3, "done", &actions_);
  EXPECT_EQ(next_->shut_down_count(), 0);
  Back(7, Hello(PS, 12));
  EXPECT_THAT(Commands(), ElementsAre("7 registered", "7 shutdown"));
}

// The record was written by a release that did not keep attempts.
TEST_F(ClusterCoreReattachTest, WithoutARecordOfItsMembersAJobHasFailed) {
  Run();
  StoredJob record = Record();
  record.attempt.reset();
  Restart(record);
  EXPECT_EQ(Status().state(), FAILED);
  EXPECT_THAT(Reason(), HasSubstr("the scheduler was restarted"));
}

TEST_F(ClusterCoreReattachTest, AfterARestoreNumbersGoOnAboveThoseOfDaemons) {
  Run();
  const StoredJob backup = Record();
  Restart(backup, /*epoch=*/8);
  Register hello = Hello(PS, 12);
  hello.set_scheduler_epoch(5);  // of no scheduler that the state knows
  hello.set_attempt(6);
  hello.set_job_number(41);
  Back(7, hello);
  EXPECT_EQ(Count<StateIsOld>(), 1);
  EXPECT_EQ(next_->epoch(), 8u);
  EXPECT_EQ(next_->NextJobId(), "j-0042");
  EXPECT_EQ(Status().state(), RUNNING) << "the members are those of the record";
}

TEST_F(ClusterCoreReattachTest, AReplacedSchedulerTakesNoMemberBack) {
  Run();
  Restart(Record(), /*epoch=*/8);
  Register hello = Hello(WORKER, 11);
  hello.set_scheduler_epoch(11);
  Back(8, hello);
  EXPECT_THAT(Commands(), testing::IsEmpty());
  EXPECT_EQ(Count<PersistEpoch>(), 1) << "the next start begins above it";
  ASSERT_THAT(Ended(), SizeIs(1));
  EXPECT_THAT(Ended()[0], HasSubstr("has been replaced"));
  EXPECT_EQ(next_->epoch(), 8u);
}

TEST_F(ClusterCoreReattachTest, WhoCannotBeAMemberHasSeenNothing) {
  Run();
  Restart(Record(), /*epoch=*/8);
  Register hello = Hello(WORKER, 99, /*attempt=*/0);
  hello.mutable_member()->set_version("9.0.0");
  hello.set_scheduler_epoch(11);
  hello.set_job_number(41);
  Back(8, hello);
  EXPECT_EQ(Count<PersistEpoch>(), 0);
  ASSERT_THAT(Ended(), SizeIs(1));
  EXPECT_THAT(Ended()[0], HasSubstr("this scheduler runs 0.1.0"));
  EXPECT_EQ(next_->NextJobId(), "j-0002");
}

TEST_F(ClusterCoreReattachTest, AnAttemptAfterARestoreIsALaterOneThanAnySeen) {
  SubmitJob();
  StoredJob backup = Record();
  backup.status =
      (*core_.Prepare(backup.status.spec(), {}, {}, job_, now_)).status;
  backup.attempt.reset();
  Restart(backup, /*epoch=*/8);  // QUEUED, as it was then
  Register hello = Hello(PS, 12, /*attempt=*/0);
  hello.set_scheduler_epoch(5);
  hello.set_attempt(3);
  Back(7, hello);
  Back(8, Hello(WORKER, 11, /*attempt=*/0));
  for (const SessionId session : {7, 8}) {
    next_->OnAddressAnswer(session, absl::OkStatus(), now_, &actions_);
  }
  EXPECT_EQ(Status().state(), PREPARING);
  EXPECT_EQ(Status().attempt(), 4u);
}

TEST_F(ClusterCoreReattachTest, AWorkerThatWasLostBeforeHasNoPartInTheJob) {
  Run();
  StoredJob record = Record();
  AddWorker(&record);
  record.status.add_done_ranks(1);
  record.status.add_lost_workers()->set_rank(1);
  Restart(record);
  // Its process lives, free or as if nothing had been.
  for (const uint32_t attempt : {0u, 1u}) {
    Register request = Hello(WORKER, 14, attempt);
    request.mutable_member()->mutable_task()->set_index(1);
    Back(30 + attempt, request);
    EXPECT_EQ((*next_->FindJob(job_))->status().state(), RUNNING);
    if (attempt == 0) next_->OnStreamClosed(30, now_, &actions_);
  }
  Back(21, Hello(WORKER, 11));
  Back(22, Hello(PS, 12));
  DaemonMessage alive;
  alive.mutable_heartbeat();
  for (int seconds = 0; seconds < 40; ++seconds) {
    Say(21, alive);
    Say(22, alive);
    Wait(absl::Seconds(1));
  }
  EXPECT_EQ((*next_->FindJob(job_))->status().state(), RUNNING);
  EXPECT_THAT((*next_->FindJob(job_))->Participants(), ElementsAre(21, 22));
}

}  // namespace
}  // namespace syncline::scheduler
