// Goal: a member whose stream broke goes on with its job on the next stream,
// and is lost if it does not come back. Method: a running job of one worker and
// one ps; streams that close and open in each order, with the commands and
// reports that were under way.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/core/cluster/cluster_core.h"
#include "tests/unit/scheduler/core/cluster/cluster_core_fixture.h"

namespace syncline::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A worker (session 1, incarnation 11) and a ps (2, 12) with a running job.
class ClusterCoreStreamTest : public ClusterCoreAddressTest {
 protected:
  ClusterCoreStreamTest() {
    Join(1, WORKER, 0, 11);
    Answer(1, absl::OkStatus());
    Join(2, PS, 0, 12);
    Answer(2, absl::OkStatus());
    job_ = Submit(1, 1);
  }
  void Run() {
    Prepared(1, job_);
    Prepared(2, job_);
    ASSERT_EQ(State(job_), RUNNING);
  }
  void Close(SessionId session) {
    actions_.clear();
    core_.OnStreamClosed(session, now_, &actions_);
  }
  void Done(SessionId session, bool released = false,
            absl::StatusCode code = absl::StatusCode::kOk,
            const std::string& text = "") {
    DaemonMessage message;
    message.mutable_done()->set_job_id(job_);
    message.mutable_done()->set_released(released);
    message.mutable_done()->set_code(static_cast<int>(code));
    message.mutable_done()->set_message(text);
    actions_.clear();
    core_.OnMessage(session, message, now_, &actions_);
  }
  std::string Reason() const {
    return (*core_.FindJob(job_))->status().transitions().rbegin()->reason();
  }

  std::string job_;
};

TEST_F(ClusterCoreStreamTest, AProcessThatComesBackGoesOnWithItsJob) {
  Run();
  Close(1);
  EXPECT_THAT(Asked(), ElementsAre(1));
  Answer(1, absl::OkStatus());
  EXPECT_EQ(State(job_), RUNNING);
  EXPECT_EQ(JobOf(1), job_);
  Join(3, WORKER, 0, 11, job_);
  EXPECT_THAT(Commands(), ElementsAre("3 registered", "3 run"));
  EXPECT_THAT(Ended(), IsEmpty());
  EXPECT_EQ(core_.membership().Find(1), nullptr);
  EXPECT_EQ(core_.lost_count(), 0);
  EXPECT_TRUE(core_.CheckUpload(UploadOf(job_, 11)).ok());
  Done(1);  // of the old stream
  EXPECT_THAT(Commands(), IsEmpty());
  Done(3);
  EXPECT_THAT(Commands(), ElementsAre("3 stop", "2 stop"));
  Released(3, job_);
  Released(2, job_);
  EXPECT_EQ(State(job_), SUCCEEDED);
}

// As each connection does under TLS when it has its age.
TEST_F(ClusterCoreStreamTest, AnIdleMemberWhoseConnectionEndsStaysOne) {
  Run();
  Join(3, WORKER, 1, 13);
  Answer(3, absl::OkStatus());
  Join(4, PS, 1, 14);
  Answer(4, absl::OkStatus());
  Join(6, WORKER, 2, 16);
  Answer(6, absl::OkStatus());
  Pass(CoreOptions().settle + absl::Seconds(1), {1, 2, 3, 4, 6});
  Close(3);
  EXPECT_THAT(Asked(), ElementsAre(3));
  Answer(3, absl::OkStatus());
  EXPECT_EQ(core_.lost_count(), 0u);
  EXPECT_THAT(JobOf(3), HasSubstr("its connection has ended"));
  const std::string large = Submit(2, 1);
  const std::string small = Submit(1, 1);
  Pass(absl::Seconds(2), {1, 2, 4, 6});
  EXPECT_EQ(State(large), QUEUED) << "nothing can be sent to it";
  EXPECT_EQ(State(small), QUEUED) << "it is behind one that waits for it";
  Join(5, WORKER, 1, 13);
  EXPECT_EQ(State(large), PREPARING);
  EXPECT_THAT(Ended(), IsEmpty());
  EXPECT_EQ(core_.membership().Find(3), nullptr);
  EXPECT_EQ(core_.lost_count(), 0u);
}

// The stream ends just before the member is told to stop.
TEST_F(ClusterCoreStreamTest, AMemberThatIsToldToStopComesBackAsItself) {
  Run();
  for (const SessionId session : {1, 2}) {
    Close(session);
    Answer(session, absl::OkStatus());
  }
  Cancel(job_);
  Join(3, WORKER, 0, 11, job_);
  EXPECT_THAT(Commands(), ElementsAre("3 registered", "3 stop"));
  EXPECT_THAT(Ended(), IsEmpty());
  // It has released the job already.
  Join(4, PS, 0, 12);
  EXPECT_THAT(Commands(), ElementsAre("4 registered"));
  EXPECT_THAT(Ended(), IsEmpty());
  Released(3, job_);
  EXPECT_EQ(State(job_), CANCELLED);
  EXPECT_EQ(core_.lost_count(), 0u);
}

// A daemon that is restarted while the end of its old process is not known.
TEST_F(ClusterCoreStreamTest, ANewProcessHasTheIndexOfTheOneThatEnded) {
  Join(3, WORKER, 1, 13);
  Answer(3, absl::OkStatus());
  Close(3);
  Register request;
  request.set_auto_index(true);
  Member* const member = request.mutable_member();
  member->mutable_task()->set_type(WORKER);
  member->set_address("h:1");
  member->set_incarnation(17);
  member->set_version("0.1.0");
  actions_.clear();
  core_.OnRegister(8, request, now_, &actions_);
  EXPECT_THAT(Ended(), ElementsAre(HasSubstr("has just lost its connection")));
  Answer(3, absl::NotFoundError("connection refused"));
  actions_.clear();
  core_.OnRegister(9, request, now_, &actions_);
  EXPECT_THAT(Ended(), IsEmpty());
  EXPECT_EQ(core_.membership().Find(9)->member.task().index(), 1u);
}

TEST_F(ClusterCoreStreamTest, AnIdleMemberThatEndsWithItsHostHasLeft) {
  Join(3, WORKER, 1, 13);
  Answer(3, absl::OkStatus());
  Close(3);
  Answer(3, absl::DeadlineExceededError("no answer"));
  Pass(CoreOptions().lease + absl::Seconds(1), {1, 2});
  EXPECT_EQ(core_.membership().Find(3), nullptr);
  EXPECT_EQ(core_.losses().at(ClusterCore::LossCause::kLeft), 1u);
}

TEST_F(ClusterCoreStreamTest, AnIdleMemberThatHasEndedHasLeft) {
  Close(9);  // has never registered
  EXPECT_THAT(Asked(), IsEmpty());
  Join(3, WORKER, 1, 13);
  Answer(3, absl::OkStatus());
  Close(3);
  Answer(3, absl::NotFoundError("connection refused"));
  EXPECT_EQ(core_.membership().Find(3), nullptr);
  EXPECT_EQ(core_.losses().at(ClusterCore::LossCause::kLeft), 1u);
  // One that lives and does not come back is gone, too.
  Join(4, WORKER, 1, 14);
  Answer(4, absl::OkStatus());
  Close(4);
  for (int i = 0; i < 120 && core_.membership().Find(4) != nullptr; ++i) {
    now_ += absl::Milliseconds(300);
    Answer(4, absl::OkStatus());
    actions_.clear();
    core_.OnTick(now_, &actions_);
  }
  EXPECT_EQ(core_.membership().Find(4), nullptr);
  EXPECT_EQ(core_.losses().at(ClusterCore::LossCause::kNotBack), 1u);
}

TEST_F(ClusterCoreStreamTest, ARevokedMemberIsLostAtOnce) {
  Run();
  const absl::Status revoked = absl::UnauthenticatedError("it is revoked");
  actions_.clear();
  core_.OnRevoked(1, revoked, now_, &actions_);
  EXPECT_THAT(Ended(), ElementsAre("1 it is revoked"));
  // It is not asked whether it lives.
  EXPECT_THAT(Asked(), IsEmpty());
  EXPECT_EQ(core_.membership().Find(1), nullptr);
  EXPECT_EQ(core_.losses().at(ClusterCore::LossCause::kRevoked), 1u);
  EXPECT_THAT(Commands(), ElementsAre("2 stop"));
  Released(2, job_);
  EXPECT_EQ(State(job_), FAILED);
  EXPECT_THAT(Reason(), HasSubstr("worker 0"));
  EXPECT_THAT(Reason(), HasSubstr("it is revoked"));
  // A stream that has not registered ends too.
  actions_.clear();
  core_.OnRevoked(7, revoked, now_, &actions_);
  EXPECT_THAT(Ended(), ElementsAre("7 it is revoked"));
  EXPECT_EQ(core_.lost_count(), 1u);
}

// Its calls are refused by others before the scheduler has noticed.
TEST_F(ClusterCoreStreamTest, ARefusedMembersFailureWaitsForItsLoss) {
  Run();
  Done(1, /*released=*/false, absl::StatusCode::kUnauthenticated,
       "ps 0 has refused a call");
  EXPECT_EQ(State(job_), RUNNING);
  now_ += absl::Seconds(1);
  core_.OnRevoked(1, absl::UnauthenticatedError("it is revoked"), now_,
                  &actions_);
  Released(2, job_);
  EXPECT_EQ(State(job_), FAILED);
  EXPECT_THAT(Reason(), HasSubstr("was lost"));
  EXPECT_THAT(Reason(), HasSubstr("it is revoked"));
  EXPECT_EQ((*core_.FindJob(job_))->status().exit_code(), 138);
}

// As after a scheduler was frozen: the end of the old stream, which is queued,
// and the new registration are handled in any order.
TEST_F(ClusterCoreStreamTest, TheNewStreamMayComeBeforeTheEndOfTheOldOne) {
  Run();
  for (const SessionId session : {3, 4, 5}) {
    const SessionId older = core_.membership().FindIncarnation(11)->session;
    Join(session, WORKER, 0, 11, job_);
    EXPECT_THAT(Ended(),
                ElementsAre(HasSubstr("this process opened another session")));
    Close(older);
    EXPECT_THAT(Asked(), IsEmpty());
  }
  EXPECT_EQ(State(job_), RUNNING);
  EXPECT_EQ(core_.membership().FindIncarnation(11)->session, 5);
}

TEST_F(ClusterCoreStreamTest, APortThatIsClosedMeansALossAtOnce) {
  Run();
  Close(1);
  Answer(1, absl::NotFoundError("connection refused"));
  EXPECT_EQ(State(job_), FAILED);
  EXPECT_THAT(Reason(), HasSubstr("worker 0 at h:1 (incarnation 0x"));
  EXPECT_THAT(Reason(), HasSubstr("was lost: stream closed; last clock 0"));
  EXPECT_THAT(Commands(), ElementsAre("2 stop"));
}

TEST_F(ClusterCoreStreamTest, WithoutAnAnswerTheLeaseDecides) {
  Run();
  Close(1);
  for (int i = 0; i < 5; ++i) {
    Beat(2);
    Tick(absl::Seconds(1));
    EXPECT_EQ(State(job_), RUNNING);
    Answer(1, absl::UnavailableError("no route to host"));
  }
  Beat(2);
  Tick(absl::Seconds(1));
  EXPECT_EQ(State(job_), FAILED);
  EXPECT_THAT(Reason(), HasSubstr("worker 0 at h:1"));
  EXPECT_THAT(Reason(), HasSubstr("was lost: silent for 6.0 s"));
}

TEST_F(ClusterCoreStreamTest,
       AProcessThatDoesNotRegisterIsNotWaitedForForEver) {
  Run();
  Close(1);
  for (int i = 0; i < 29; ++i) {
    Answer(1, absl::OkStatus());
    Beat(2);
    Tick(absl::Seconds(1));
    EXPECT_EQ(State(job_), RUNNING);
  }
  Answer(1, absl::OkStatus());
  Tick(absl::Seconds(1));
  EXPECT_EQ(State(job_), FAILED);
  EXPECT_THAT(Reason(), HasSubstr("has not registered again within 30.0 s"));
}

// The command may have left on the stream that broke.
TEST_F(ClusterCoreStreamTest, WhatAMemberMayNotHaveHeardIsRepeated) {
  Close(1);
  Join(3, WORKER, 0, 11);
  EXPECT_THAT(Commands(), ElementsAre("3 registered", "3 prepare"));
  Join(4, WORKER, 0, 11, job_);
  EXPECT_THAT(Commands(), ElementsAre("4 registered"));
  Prepared(4, job_);
  Join(5, WORKER, 0, 11, job_);
  EXPECT_THAT(Commands(), ElementsAre("5 registered"));
  Prepared(2, job_);
  ASSERT_EQ(State(job_), RUNNING);
  ProfileRequest profile;
  profile.set_job_id(job_);
  profile.set_steps(3);
  ASSERT_TRUE(core_.Profile(profile, &actions_).ok());
  Join(6, WORKER, 0, 11, job_);
  EXPECT_THAT(Commands(), ElementsAre("6 registered", "6 run", "6 profile"));
  Join(7, PS, 0, 12, job_);
  EXPECT_THAT(Commands(), ElementsAre("7 registered"));
  EXPECT_EQ(State(job_), RUNNING);
}

// A daemon names no job any more when it is done; it says that again.
TEST_F(ClusterCoreStreamTest, TheEndOfAWorkersPartMayArriveOnTheNextStream) {
  Run();
  Close(1);
  Join(3, WORKER, 0, 11);
  EXPECT_EQ(State(job_), RUNNING);
  Done(3, /*released=*/true);
  EXPECT_THAT(Commands(), ElementsAre("3 stop", "2 stop"));
}

// A scheduler and a ps that were paused together: the worker has given up, and
// has stopped as an orphan what it had failed. It says both again.
TEST_F(ClusterCoreStreamTest, AFailureStaysOneWhenWhatIsLeftIsStopped) {
  for (const auto stopped :
       {absl::StatusCode::kOk, absl::StatusCode::kAborted}) {
    SCOPED_TRACE(static_cast<int>(stopped));
    Run();
    Close(1);
    Join(3, WORKER, 0, 11);
    Done(3, /*released=*/false, absl::StatusCode::kUnavailable, "ps 0 is away");
    Done(3, /*released=*/true, stopped, "stopped: no scheduler");
    EXPECT_EQ(State(job_), RUNNING) << "a better reason may come";
    Tick(absl::Seconds(3));
    EXPECT_EQ(State(job_), FAILED);
    EXPECT_EQ((*core_.FindJob(job_))->status().exit_code(), 138);
    EXPECT_EQ(Reason(), "worker 0 at h:1: ps 0 is away");
    EXPECT_THAT(Commands(), ElementsAre("3 stop", "2 stop"));
    Released(3, job_);
    Released(2, job_);
    EXPECT_EQ(State(job_), FAILED);
    // The next round, on the first session again.
    Join(1, WORKER, 0, 11);
    Answer(1, absl::OkStatus());
    job_ = Submit(1, 1);
  }
}

// The others are prepared, and the job would run without it.
TEST_F(ClusterCoreStreamTest, AStopWhileAMemberPreparesIsWorthARetry) {
  Prepared(2, job_);
  Close(1);
  Join(3, WORKER, 0, 11);
  Done(3, /*released=*/true, absl::StatusCode::kAborted,
       "stopped: no scheduler");
  EXPECT_EQ(State(job_), FAILED);
  EXPECT_EQ((*core_.FindJob(job_))->status().exit_code(), 138);
  EXPECT_EQ(Reason(), "worker 0 at h:1: stopped: no scheduler");
}

TEST_F(ClusterCoreStreamTest, APsThatReleasesAJobByItselfFailsIt) {
  Run();
  Close(2);
  Join(3, PS, 0, 12);
  Done(3, /*released=*/true);
  EXPECT_EQ(State(job_), FAILED);
  EXPECT_THAT(Reason(), HasSubstr("ps 0 at h:1"));
  EXPECT_THAT(Reason(), HasSubstr("it released the job"));
  EXPECT_THAT(Commands(), ElementsAre("1 stop", "3 stop"));
}

TEST_F(ClusterCoreStreamTest, AJobThatEndsMeanwhileIsStoppedOnTheNextStream) {
  Run();
  Close(1);
  Cancel(job_);
  Released(2, job_);
  Join(3, WORKER, 0, 11, job_);
  EXPECT_THAT(Commands(), ElementsAre("3 registered", "3 stop"));
  Answer(3, absl::OkStatus());
  Released(3, job_);
  EXPECT_EQ(State(Submit(1, 1)), PREPARING);
}

TEST_F(ClusterCoreStreamTest, OnlyTheSameProcessWithTheSameJobGoesOn) {
  Run();
  Join(3, WORKER, 0, 11, "j-0009");
  EXPECT_EQ(State(job_), FAILED);
  EXPECT_THAT(Reason(), HasSubstr("it opened another session"));
}

TEST_F(ClusterCoreStreamTest, AFreeMemberThatLeavesIsNotAskedForEver) {
  Cancel(job_);
  Released(1, job_);
  Close(1);
  EXPECT_THAT(Asked(), ElementsAre(1));
  Answer(1, absl::NotFoundError("connection refused"));
  EXPECT_EQ(core_.membership().Find(1), nullptr);
  now_ += absl::Seconds(1);
  actions_.clear();
  core_.OnTick(now_, &actions_);
  EXPECT_THAT(Asked(), IsEmpty());
}

// A scheduler that was killed while results were stored: the worker tells its
// successor where they are.
TEST_F(ClusterCoreStreamTest, AJobThatARestartFailedNamesResultsThatWereKept) {
  Run();
  ClusterCore next(Options());
  ClusterActions actions;
  const auto take = [&](SessionId session, const Register& request) {
    next.OnRegister(session, request, now_, &actions);
  };
  next.Restore({{(*core_.FindJob(job_))->status(), {}, {}}}, {}, now_,
               &actions);
  Register request;
  *request.mutable_member() = core_.membership().Find(1)->member;
  request.set_job_id(job_);
  take(1, request);
  Register stranger = request;
  stranger.mutable_member()->set_incarnation(99);
  stranger.mutable_member()->mutable_task()->set_index(5);
  stranger.mutable_member()->set_address("h:9");
  stranger.set_job_id("");
  take(2, stranger);
  const auto say = [&](SessionId session, const std::string& activity) {
    DaemonMessage message;
    message.mutable_report()->set_job_id(job_);
    message.mutable_report()->set_activity(activity);
    actions.clear();
    next.OnMessage(session, message, now_, &actions);
    return (*next.FindJob(job_))->status().transitions().rbegin()->reason();
  };
  const std::string failed = say(1, "reading a.csv");
  EXPECT_EQ(failed, "the scheduler was restarted while the job was running");
  EXPECT_EQ(say(2, "not stored: a stranger's"), failed);
  const std::string text = "not stored: trained.onnx; kept on host-a in /w/r";
  const std::string named = failed + "\nworker 0 at h:1: " + text;
  EXPECT_EQ(say(1, text), named);
  ASSERT_FALSE(actions.empty());
  EXPECT_TRUE(std::holds_alternative<PersistJob>(actions[0]));
  EXPECT_EQ(say(1, text), named) << "once";
  // Also when it has been freed.
  DaemonMessage released;
  released.mutable_done()->set_job_id(job_);
  released.mutable_done()->set_released(true);
  next.OnMessage(1, released, now_, &actions);
  EXPECT_EQ(say(1, "not stored: b; kept on host-a in /w/r"),
            named + "\nworker 0 at h:1: not stored: b; kept on host-a in /w/r");
}

}  // namespace
}  // namespace syncline::scheduler
