// Goal: a job goes on with the workers that it should have, or with those that
// are free where that is enough for it, and jobs that wait come first. Method:
// a cluster with spare members, events one by one.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/job/stop_reasons.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/core/cluster/cluster_core.h"
#include "scheduler/core/job/restart_policy.h"
#include "tests/unit/scheduler/core/cluster/cluster_core_fixture.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

constexpr SessionId kPs = 100;
constexpr SessionId kOtherPs = 101;
constexpr SessionId kThirdPs = 102;

// Workers have the sessions 1, 2, ...
class ClusterCoreScaleTest : public ClusterCoreTest {
 protected:
  ClusterCoreScaleTest() {
    Join(kPs, PS, 0, 100);
    Wait(absl::Seconds(20));  // the cluster has come together
  }
  void JoinWorkers(SessionId first, SessionId last) {
    for (SessionId session = first; session <= last; ++session) {
      Join(session, WORKER, static_cast<uint32_t>(session), session);
      all_.push_back(session);
    }
  }
  static JobSpec Spec(uint32_t workers, uint32_t least = 0, uint32_t most = 0) {
    JobSpec spec;
    spec.mutable_training()->set_batch_size(32);
    spec.mutable_resources()->set_workers(workers);
    spec.mutable_resources()->set_min_workers(least);
    spec.mutable_resources()->set_max_workers(most);
    spec.mutable_resources()->set_ps(1);
    spec.mutable_checkpoint()->set_every_clocks(1000);
    spec.mutable_checkpoint()->set_directory("/c");
    spec.mutable_restart()->set_max(1);
    spec.mutable_restart()->set_backoff_seconds(0);
    return spec;
  }
  // Such a job goes back to its checkpoint when it loses a worker.
  static JobSpec InStep(JobSpec spec) {
    spec.mutable_training()->set_sync_batch_statistics(true);
    return spec;
  }
  std::string Queue(const JobSpec& spec,
                    std::vector<ParameterInfo> parameters = {},
                    const std::string& tenant = "") {
    auto job =
        core_.Prepare(spec, std::move(parameters), {}, core_.NextJobId(), now_);
    job->status.set_tenant(tenant);
    const std::string id = job->status.job_id();
    actions_.clear();
    core_.Submit(*job, now_, &actions_);
    return id;
  }
  const JobStatus& Status(const std::string& job) const {
    return (*core_.FindJob(job))->status();
  }
  // All its members are prepared.
  void Run(const std::string& job) {
    for (const SessionId session : (*core_.FindJob(job))->Participants()) {
      DaemonMessage message;
      message.mutable_prepared()->set_job_id(job);
      message.mutable_prepared()->set_attempt(Status(job).attempt());
      core_.OnMessage(session, message, now_, &actions_);
    }
    ASSERT_EQ(State(job), RUNNING);
  }
  std::string SubmitAndRun(const JobSpec& spec,
                           const std::string& tenant = "") {
    const std::string id = Queue(spec, {}, tenant);
    Run(id);
    return id;
  }
  void SetQuotas(const std::string& text) {
    auto quotas = TenantQuotas::Parse(text);
    ASSERT_TRUE(quotas.ok()) << quotas.status();
    actions_.clear();
    core_.SetQuotas(*std::move(quotas), now_, &actions_);
  }
  void Use(TaskType type, uint32_t index, SetMemberUseRequest::Use use) {
    SetMemberUseRequest request;
    request.mutable_task()->set_type(type);
    request.mutable_task()->set_index(index);
    request.set_use(use);
    core_.SetMemberUse(request, now_, &actions_);
  }
  // "OK", or why not.
  std::string BecomeAsync(const std::string& job) {
    ChangeRegimeRequest request;
    request.set_job_id(job);
    request.mutable_change()->set_mode(ConsistencySpec::ASYNC);
    const absl::Status status = core_.ChangeRegime(request, &actions_);
    return status.ok() ? "OK" : std::string(status.message());
  }
  // A job that has run with two workers prepares with the third.
  void GrowToThree(std::string* job) {
    JoinWorkers(1, 2);
    *job = Queue(Spec(3, 2));
    Wait(absl::Seconds(16));
    Run(*job);
    JoinWorkers(3, 3);
    ASSERT_TRUE(IsAskedWithin(130));
    Save(*job, 10);
    ASSERT_EQ(Status(*job).workers_size(), 3);
  }
  // "OK", or why not.
  std::string Scale(const std::string& job, uint32_t workers,
                    const std::string& reason = "") {
    ScaleRequest request;
    request.set_job_id(job);
    request.set_workers(workers);
    request.set_reason(reason);
    actions_.clear();
    const absl::Status status = core_.Scale(request, now_, &actions_);
    return status.ok() ? "OK" : std::string(status.message());
  }
  // The checkpoint that was asked for is whole; the members leave the job.
  void Save(const std::string& job, int64_t clock) {
    Report(job, clock);
    Leave(job);
  }
  void Report(const std::string& job, int64_t clock) {
    DaemonMessage message;
    message.mutable_report()->set_job_id(job);
    message.mutable_report()->set_attempt(Status(job).attempt());
    CheckpointInfo* whole = message.mutable_report()->mutable_checkpoint();
    whole->set_path(absl::StrCat("/c/", job, clock));
    whole->set_clock(clock);
    actions_.clear();
    core_.OnMessage((*core_.FindJob(job))->Participants()[0], message, now_,
                    &actions_);
  }
  void Leave(const std::string& job) {
    const uint32_t attempt = Status(job).attempt();
    for (const SessionId session : (*core_.FindJob(job))->Participants()) {
      DaemonMessage message;
      message.mutable_done()->set_job_id(job);
      message.mutable_done()->set_released(true);
      message.mutable_done()->set_attempt(attempt);
      core_.OnMessage(session, message, now_, &actions_);
    }
  }
  void Wait(absl::Duration time) {
    std::vector<SessionId> heard = all_;
    heard.insert(heard.end(), {kPs, kOtherPs, kThirdPs});
    Pass(time, heard);
  }
  // How many jobs the last event has asked for a checkpoint.
  int AskedToSave() const {
    const std::vector<std::string> commands = Commands();
    return static_cast<int>(std::count_if(
        commands.begin(), commands.end(), [](const std::string& command) {
          return absl::EndsWith(command, "write checkpoint");
        }));
  }
  bool IsAskedToSave() const { return AskedToSave() > 0; }
  bool IsAskedWithin(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      Wait(absl::Seconds(1));
      if (IsAskedToSave()) return true;
    }
    return false;
  }
  // The assignment that a member gets with the Prepare in `actions_`.
  JobAssignment Told(SessionId session) const {
    for (const ClusterAction& action : actions_) {
      const auto* send = std::get_if<SendCommand>(&action);
      if (send != nullptr && send->session == session &&
          send->message.has_prepare()) {
        return send->message.prepare().assignment();
      }
    }
    return JobAssignment();
  }
  std::string LastQueued(const std::string& job) const {
    std::string reason;
    for (const JobTransition& transition : Status(job).transitions()) {
      if (transition.state() == QUEUED) reason = transition.reason();
    }
    return reason;
  }

  std::vector<SessionId> all_;
};

TEST_F(ClusterCoreScaleTest, ARunningJobSavesAndGoesOnWithMore) {
  JoinWorkers(1, 3);
  const std::string job = SubmitAndRun(Spec(2));
  EXPECT_EQ(Scale(job, 3, "hurry"), "OK");
  EXPECT_THAT(Commands(), ElementsAre("1 write checkpoint"));
  Save(job, 40);
  EXPECT_EQ(State(job), PREPARING);
  EXPECT_EQ(Status(job).workers_size(), 3);
  EXPECT_EQ(Status(job).wanted_workers(), 3u);
  EXPECT_THAT(LastQueued(job),
              AllOf(StartsWith(kPlannedMove),
                    HasSubstr("scaled to 3 workers (hurry), goes on with 3 "
                              "instead of 2 workers; attempt 2 goes on from "
                              "the checkpoint at clock 40")));
  // A clock keeps its samples; the record is as the user wrote it.
  const JobAssignment told = Told(3);
  EXPECT_EQ(told.spec().resources().workers(), 3u);
  EXPECT_EQ(told.spec().training().global_batch(), 64u);
  EXPECT_EQ(told.start_clock(), 40);
  EXPECT_EQ(Status(job).spec().training().global_batch(), 0u);
  EXPECT_EQ(Status(job).spec().resources().workers(), 2u);
}

TEST_F(ClusterCoreScaleTest, AndWithFewer) {
  JoinWorkers(1, 3);
  const std::string job = SubmitAndRun(Spec(3));
  EXPECT_EQ(Scale(job, 1), "OK");
  Save(job, 40);
  EXPECT_EQ(Status(job).workers_size(), 1);
  Run(job);
  // Back at its own number it has what it began with.
  EXPECT_EQ(Scale(job, 3), "OK");
  Save(job, 50);
  EXPECT_EQ(Status(job).workers_size(), 3);
  EXPECT_EQ(Told(1).spec().training().global_batch(), 0u);
}

TEST_F(ClusterCoreScaleTest, AQueuedJobBeginsWithThatMany) {
  JoinWorkers(1, 2);
  const std::string job = Queue(Spec(3));
  EXPECT_EQ(State(job), QUEUED);
  EXPECT_EQ(Scale(job, 2), "OK");
  EXPECT_EQ(State(job), PREPARING);
  EXPECT_EQ(Told(1).spec().training().global_batch(), 96u);
}

TEST_F(ClusterCoreScaleTest, ItTakesWhatIsFreeAndTheRestLater) {
  JoinWorkers(1, 3);
  const std::string job = SubmitAndRun(Spec(2));
  EXPECT_EQ(Scale(job, 5), "OK");
  Save(job, 10);
  EXPECT_EQ(Status(job).workers_size(), 3);
  Run(job);
  // Not at once: it has just been moved.
  JoinWorkers(4, 4);
  Wait(absl::Seconds(110));
  EXPECT_FALSE(IsAskedToSave());
  EXPECT_TRUE(IsAskedWithin(15));
  Save(job, 20);
  EXPECT_EQ(Status(job).workers_size(), 4);
  EXPECT_THAT(LastQueued(job), HasSubstr("more workers are free, goes on with "
                                         "4 instead of 3 workers"));
}

TEST_F(ClusterCoreScaleTest, WhereNoneIsFreeItGoesOnUntilOneIs) {
  JoinWorkers(1, 2);
  const std::string job = SubmitAndRun(Spec(2));
  EXPECT_EQ(Scale(job, 3), "OK");
  EXPECT_THAT(Commands(), IsEmpty());
  EXPECT_EQ(State(job), RUNNING);
  JoinWorkers(3, 3);
  Tick(absl::Milliseconds(100));
  EXPECT_TRUE(IsAskedToSave()) << "people have asked: no pause";
}

TEST_F(ClusterCoreScaleTest, ThePresentNumberChangesNothing) {
  JoinWorkers(1, 3);
  const std::string job = SubmitAndRun(Spec(2));
  EXPECT_EQ(Scale(job, 2), "OK");
  EXPECT_THAT(actions_, IsEmpty());
  EXPECT_EQ(Status(job).wanted_workers(), 0u);
}

TEST_F(ClusterCoreScaleTest, AMoveCountsAgainstNoLimit) {
  JoinWorkers(1, 3);
  const std::string job = SubmitAndRun(Spec(2));
  for (int64_t i = 1; i <= 4; ++i) {
    EXPECT_EQ(Scale(job, i % 2 == 1 ? 3 : 2), "OK");
    Save(job, 10 * i);
    Run(job);
  }
  EXPECT_EQ(Status(job).attempt(), 5u);
  core_.OnStreamClosed(1, now_, &actions_);
  EXPECT_EQ(State(job), QUEUED) << "restart.max is 1, and this is the first";
}

// They may be saving it without the one that was lost.
TEST_F(ClusterCoreScaleTest, WhoGoesBackHearsThatTheJobWasCancelled) {
  JoinWorkers(1, 2);
  const std::string job = SubmitAndRun(InStep(Spec(2)));
  actions_.clear();
  core_.OnStreamClosed(2, now_, &actions_);
  ASSERT_EQ(State(job), QUEUED);
  EXPECT_THAT(Commands(), UnorderedElementsAre("1 stop", "100 stop"));
  Released(kPs, job);
  actions_.clear();
  core_.Cancel(job, "", now_, &actions_).IgnoreError();
  ASSERT_THAT(Commands(), ElementsAre("1 stop"));
  for (const ClusterAction& action : actions_) {
    if (const auto* send = std::get_if<SendCommand>(&action)) {
      EXPECT_EQ(send->message.stop().attempt(), 1u);
      EXPECT_EQ(send->message.stop().reason(),
                "CANCELLED: cancelled by the user");
    }
  }
  Released(1, job);
  EXPECT_EQ(core_.engaged_count(), 0);
}

TEST_F(ClusterCoreScaleTest, WhatCannotBeIsRefusedByName) {
  JoinWorkers(1, 3);
  const std::string job = SubmitAndRun(Spec(2, 2, 4));
  EXPECT_EQ(Scale("j-0099", 2), "no job \"j-0099\"");
  EXPECT_EQ(Scale(job, 0), "workers: 0 is outside 1..1024");
  EXPECT_EQ(Scale(job, 1025), "workers: 1025 is outside 1..1024");
  EXPECT_THAT(Scale(job, 5), HasSubstr("resources.max_workers, 4"));
  EXPECT_THAT(Scale(job, 1), HasSubstr("resources.min_workers, 2"));
  EXPECT_THAT(Scale(job, 3, std::string(257, 'x')), HasSubstr("reason: "));
  EXPECT_THAT(actions_, IsEmpty());
  core_.Cancel(job, "", now_, &actions_).IgnoreError();
  EXPECT_EQ(Scale(job, 3),
            absl::StrCat("job ", job,
                         " cannot have another number of workers: "
                         "it is CANCELLED already"));
}

TEST_F(ClusterCoreScaleTest, JobsThatCannotChangeAreNamed) {
  JoinWorkers(1, 3);
  JobSpec unsaved = Spec(1);
  unsaved.clear_checkpoint();
  unsaved.clear_restart();
  EXPECT_THAT(Scale(SubmitAndRun(unsaved), 2),
              HasSubstr("it has no `checkpoint` to go on from with these; "
                        "cancel it, and submit it with resources.workers: 2"));
  core_.Cancel("j-0001", "", now_, &actions_).IgnoreError();
  Leave("j-0001");
  JobSpec async = Spec(1);
  async.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  EXPECT_THAT(Scale(SubmitAndRun(async), 2),
              HasSubstr("consistency.mode: ASYNC"));
  core_.Cancel("j-0002", "", now_, &actions_).IgnoreError();
  Leave("j-0002");
  JobSpec apart = Spec(1);
  apart.mutable_checkpoint()->clear_directory();
  EXPECT_THAT(Scale(SubmitAndRun(apart), 2),
              HasSubstr("without checkpoint.directory each ps keeps its part"));
  core_.Cancel("j-0003", "", now_, &actions_).IgnoreError();
  Leave("j-0003");
  ParameterInfo mean;
  mean.set_momentum(0.9f);
  EXPECT_THAT(Scale(Queue(Spec(1), {mean}), 2),
              HasSubstr("BatchNormalization"));
}

TEST_F(ClusterCoreScaleTest, NotWhileItsRegimeChanges) {
  JoinWorkers(1, 3);
  const std::string job = SubmitAndRun(Spec(2));
  ASSERT_EQ(BecomeAsync(job), "OK");
  EXPECT_THAT(Scale(job, 3), HasSubstr("a change of its regime is under way"));
}

// The drain moves the job, and the number counts then.
TEST_F(ClusterCoreScaleTest, WhileItLeavesAMemberTheNextAttemptHasThem) {
  JoinWorkers(1, 4);
  const std::string job = SubmitAndRun(Spec(3));
  SetMemberUseRequest drain;
  drain.mutable_task()->set_type(WORKER);
  drain.mutable_task()->set_index(2);
  drain.set_use(SetMemberUseRequest::DRAIN);
  core_.SetMemberUse(drain, now_, &actions_);
  EXPECT_EQ(Scale(job, 2), "OK");
  EXPECT_THAT(Commands(), IsEmpty()) << "one checkpoint is under way";
  Save(job, 10);
  EXPECT_EQ(Status(job).workers_size(), 2);
  EXPECT_THAT(LastQueued(job), HasSubstr("worker 2 is drained"));
}

TEST_F(ClusterCoreScaleTest, ALostWorkerIsTakenBackAfterAPause) {
  JoinWorkers(1, 4);
  const std::string job = SubmitAndRun(Spec(4, 2));
  Report(job, 7);
  Wait(absl::Seconds(600));
  core_.OnStreamClosed(3, now_, &actions_);
  all_.erase(all_.begin() + 2);
  EXPECT_EQ(State(job), RUNNING);
  EXPECT_EQ(Status(job).attempt(), 1u);
  EXPECT_EQ(Status(job).lost_workers_size(), 1);
  core_.RecordEvents(now_, &actions_);
  const auto events = core_.Events(job, 0);
  ASSERT_TRUE(events.ok());
  EXPECT_EQ(std::count_if(events->events.begin(), events->events.end(),
                          [](const StoredEvent& event) {
                            return absl::StrContains(
                                event.event.text(),
                                "the job goes on with 3 workers");
                          }),
            1);
  JoinWorkers(3, 3);
  Wait(absl::Seconds(110));
  EXPECT_FALSE(IsAskedToSave());
  EXPECT_TRUE(IsAskedWithin(15));
  Save(job, 30);
  EXPECT_THAT(LastQueued(job),
              HasSubstr("goes on with 4 instead of 3 workers"));
  EXPECT_EQ(Status(job).workers_size(), 4);
  EXPECT_EQ(Status(job).lost_workers_size(), 0);
}

TEST_F(ClusterCoreScaleTest, ALostWorkerCostsAnElasticJobOnlyThatWorker) {
  JoinWorkers(1, 4);
  const std::string job = SubmitAndRun(InStep(Spec(4, 2)));
  Report(job, 7);  // the job's own: it goes on
  EXPECT_EQ(State(job), RUNNING);
  Wait(absl::Seconds(20));
  core_.OnStreamClosed(3, now_, &actions_);
  all_.erase(all_.begin() + 2);
  Leave(job);
  EXPECT_EQ(State(job), PREPARING) << WaitingFor(job);
  EXPECT_EQ(Status(job).workers_size(), 3);
  EXPECT_EQ(Told(1).spec().training().global_batch(), 128u);
  EXPECT_THAT(Status(job).transitions().rbegin()->reason(),
              HasSubstr("on 3 workers instead of 4 and 1 ps"));
  Run(job);
  // It comes back, and is taken after the pause.
  JoinWorkers(3, 3);
  Wait(absl::Seconds(110));
  EXPECT_FALSE(IsAskedToSave());
  EXPECT_TRUE(IsAskedWithin(15));
  Save(job, 30);
  EXPECT_EQ(Status(job).workers_size(), 4);
}

// The rest of the cluster may still register.
TEST_F(ClusterCoreScaleTest, AJobThatWaitedForAnotherSchedulerWaitsForAll) {
  JoinWorkers(1, 3);
  const std::string job = SubmitAndRun(InStep(Spec(3, 1)));
  core_.OnStreamClosed(3, now_, &actions_);
  ASSERT_EQ(State(job), QUEUED);
  StoredJob stored;
  stored.status = Status(job);
  ClusterCore next(CoreOptions());
  now_ += absl::Seconds(5);
  next.Restore({stored}, {}, now_, &actions_);
  const auto join = [&](SessionId session, TaskType type) {
    Register request;
    request.mutable_member()->mutable_task()->set_type(type);
    request.mutable_member()->mutable_task()->set_index(
        static_cast<uint32_t>(session));
    request.mutable_member()->set_address("h:1");
    request.mutable_member()->set_incarnation(session);
    request.mutable_member()->set_version("0.1.0");
    next.OnRegister(session, request, now_, &actions_);
  };
  join(kPs, PS);
  join(1, WORKER);
  join(2, WORKER);
  EXPECT_EQ((*next.FindJob(job))->status().state(), QUEUED);
  now_ += absl::Seconds(4);
  join(3, WORKER);
  EXPECT_EQ((*next.FindJob(job))->status().state(), PREPARING);
  EXPECT_EQ((*next.FindJob(job))->status().workers_size(), 3);
}

TEST_F(ClusterCoreScaleTest, WithFewerThanItsLeastItWaits) {
  JoinWorkers(1, 3);
  const std::string job = SubmitAndRun(Spec(3, 3));
  Wait(absl::Seconds(20));
  core_.OnStreamClosed(3, now_, &actions_);
  all_.pop_back();
  Leave(job);
  EXPECT_EQ(State(job), QUEUED);
}

TEST_F(ClusterCoreScaleTest, AFirstAttemptWaitsForAWhileForAllWorkers) {
  JoinWorkers(1, 2);
  const std::string job = Queue(Spec(3, 2));
  EXPECT_EQ(State(job), QUEUED);
  EXPECT_THAT(WaitingFor(job),
              HasSubstr("it begins with fewer workers where no more come "
                        "within 15.0 s"));
  Wait(absl::Seconds(13));
  EXPECT_EQ(State(job), QUEUED);
  Wait(absl::Seconds(3));
  EXPECT_EQ(State(job), PREPARING);
  EXPECT_EQ(Status(job).workers_size(), 2);
}

TEST_F(ClusterCoreScaleTest, MoreThanItsOwnNumberOnlyWhereNobodyWaits) {
  JoinWorkers(1, 5);
  Join(kOtherPs, PS, 1, 101);
  const std::string elastic = SubmitAndRun(Spec(2, 1, 4));
  EXPECT_EQ(Status(elastic).workers_size(), 4) << "they are free";
  // Another job needs them.
  const std::string other = Queue(Spec(2));
  EXPECT_EQ(State(other), QUEUED);
  Wait(absl::Seconds(1));
  EXPECT_TRUE(IsAskedToSave());
  Save(elastic, 10);
  EXPECT_EQ(State(other), PREPARING);
  EXPECT_EQ(Status(elastic).workers_size(), 2);
  EXPECT_THAT(LastQueued(elastic),
              HasSubstr("another job waits for workers, goes on with 2"));
  // Again nobody waits.
  Run(elastic);
  EXPECT_TRUE(IsAskedWithin(125));
  Save(elastic, 20);
  EXPECT_EQ(Status(elastic).workers_size(), 3);
}

TEST_F(ClusterCoreScaleTest, SeveralJobsGiveBackWhatAnotherNeeds) {
  JoinWorkers(1, 8);
  Join(kOtherPs, PS, 1, 101);
  Join(kThirdPs, PS, 2, 102);
  const std::string a = SubmitAndRun(Spec(3, 0, 4));
  const std::string b = SubmitAndRun(Spec(3, 0, 4));
  ASSERT_EQ(Status(a).workers_size() + Status(b).workers_size(), 8);
  const std::string other = Queue(Spec(2));
  Wait(absl::Seconds(1));
  EXPECT_EQ(AskedToSave(), 2);
  Save(a, 10);
  EXPECT_EQ(Status(a).workers_size(), 3);
  EXPECT_EQ(State(other), QUEUED);
  Save(b, 10);
  EXPECT_EQ(Status(b).workers_size(), 3);
  EXPECT_EQ(State(other), PREPARING);
}

TEST_F(ClusterCoreScaleTest, AsFewJobsAsItTakesGiveBack) {
  JoinWorkers(1, 8);
  Join(kOtherPs, PS, 1, 101);
  Join(kThirdPs, PS, 2, 102);
  const std::string a = SubmitAndRun(Spec(3, 0, 4));
  const std::string b = SubmitAndRun(Spec(3, 0, 4));
  const std::string other = Queue(Spec(1));
  Wait(absl::Seconds(1));
  EXPECT_EQ(AskedToSave(), 1);
  // Job a gives a worker back, so job b keeps its own.
  Report(a, 10);
  ASSERT_EQ(State(a), QUEUED);
  Wait(absl::Seconds(1));
  EXPECT_FALSE(IsAskedToSave());
  Leave(a);
  EXPECT_EQ(State(other), PREPARING);
  EXPECT_EQ(Status(a).workers_size(), 3);
  EXPECT_EQ(Status(b).workers_size(), 4);
}

TEST_F(ClusterCoreScaleTest, WhatIsNotEnoughIsNotGivenBack) {
  JoinWorkers(1, 4);
  Join(kOtherPs, PS, 1, 101);
  const std::string elastic = SubmitAndRun(Spec(3, 0, 4));
  Queue(Spec(2));
  EXPECT_FALSE(IsAskedWithin(5));
  EXPECT_EQ(State(elastic), RUNNING);
}

// Its members are free one after the other, and would be enough for the other.
TEST_F(ClusterCoreScaleTest, AJobThatMakesRoomKeepsItsPlace) {
  JoinWorkers(1, 3);
  Join(kOtherPs, PS, 1, 101);
  const std::string job = SubmitAndRun(Spec(3));
  const std::string other = Queue(Spec(2));
  ASSERT_EQ(State(other), QUEUED);
  EXPECT_EQ(Scale(job, 2), "OK");
  Save(job, 10);
  EXPECT_EQ(State(job), PREPARING);
  EXPECT_EQ(Status(job).workers_size(), 2);
  EXPECT_EQ(State(other), QUEUED);
}

TEST_F(ClusterCoreScaleTest, ItIsNotMovedToWhereItCouldNotGoOn) {
  JoinWorkers(1, 3);
  const std::string job = SubmitAndRun(Spec(2));
  Use(PS, 0, SetMemberUseRequest::CORDON);
  EXPECT_EQ(Scale(job, 3), "OK");
  EXPECT_FALSE(IsAskedToSave());
  EXPECT_FALSE(IsAskedWithin(5));
  Join(kOtherPs, PS, 1, 101);
  Tick(absl::Milliseconds(100));
  EXPECT_TRUE(IsAskedToSave());
}

TEST_F(ClusterCoreScaleTest, ACordonedWorkerOfItsOwnIsNoneToGoOnWith) {
  JoinWorkers(1, 3);
  const std::string job = SubmitAndRun(Spec(2));
  Use(WORKER, 1, SetMemberUseRequest::CORDON);
  EXPECT_EQ(Scale(job, 3), "OK");
  EXPECT_FALSE(IsAskedToSave()) << "it would have two again";
  JoinWorkers(4, 4);
  Tick(absl::Milliseconds(100));
  EXPECT_TRUE(IsAskedToSave());
  Save(job, 10);
  EXPECT_EQ(Status(job).workers_size(), 3);
}

TEST_F(ClusterCoreScaleTest, WithAQuotaItTakesNoMoreThanItsOwnNumber) {
  JoinWorkers(1, 5);
  SetQuotas("acme workers=8\n");
  const std::string job = SubmitAndRun(Spec(2, 1, 4), "acme");
  EXPECT_EQ(Status(job).workers_size(), 2);
  EXPECT_FALSE(IsAskedWithin(200));
}

TEST_F(ClusterCoreScaleTest, AQuotaThatIsNewTakesBackWhatIsBeyondIt) {
  JoinWorkers(1, 4);
  const std::string job = SubmitAndRun(Spec(2, 1, 4), "acme");
  ASSERT_EQ(Status(job).workers_size(), 4);
  SetQuotas("acme workers=4\n");
  Wait(absl::Seconds(1));
  EXPECT_TRUE(IsAskedToSave());
  Save(job, 10);
  EXPECT_EQ(Status(job).workers_size(), 2);
  EXPECT_THAT(LastQueued(job),
              HasSubstr("its tenant has a quota, goes on with 2 instead of 4"));
}

TEST_F(ClusterCoreScaleTest, AJobThatGrowsDoesNotWaitForItsOwnQuota) {
  JoinWorkers(1, 6);
  Join(kOtherPs, PS, 1, 101);
  SetQuotas("acme workers=4\n");
  SubmitAndRun(Spec(2), "acme");
  const std::string job = SubmitAndRun(Spec(1), "acme");
  EXPECT_EQ(Scale(job, 4), "OK");
  EXPECT_TRUE(IsAskedToSave());
  Save(job, 10);
  EXPECT_EQ(State(job), PREPARING) << WaitingFor(job);
  EXPECT_EQ(Status(job).workers_size(), 2) << "and six are there";
}

TEST_F(ClusterCoreScaleTest, WhatWasSaidIsTakenBack) {
  JoinWorkers(1, 4);
  const std::string job = SubmitAndRun(Spec(2));
  EXPECT_EQ(Scale(job, 4), "OK");
  EXPECT_TRUE(IsAskedToSave());
  EXPECT_EQ(Scale(job, 2), "OK");
  Report(job, 10);
  EXPECT_EQ(State(job), RUNNING);
  // Not where it is to leave a member, too.
  EXPECT_EQ(Scale(job, 4), "OK");
  Wait(absl::Seconds(6));
  Use(WORKER, 1, SetMemberUseRequest::DRAIN);
  EXPECT_EQ(Scale(job, 2), "OK");
  Report(job, 20);
  EXPECT_EQ(State(job), QUEUED);
}

TEST_F(ClusterCoreScaleTest, AJobWhoseWorkersChangeStaysInSync) {
  JoinWorkers(1, 2);
  const std::string job = SubmitAndRun(Spec(2));
  EXPECT_EQ(Scale(job, 3), "OK");
  EXPECT_THAT(BecomeAsync(job), HasSubstr("`synctl scale` has said 3 workers"));
  EXPECT_EQ(Scale(job, 2), "OK");
  EXPECT_EQ(BecomeAsync(job), "OK");
  core_.Cancel(job, "", now_, &actions_).IgnoreError();
  Leave(job);
  EXPECT_THAT(BecomeAsync(SubmitAndRun(Spec(2, 1))),
              HasSubstr("resources.min_workers or resources.max_workers"));
}

TEST_F(ClusterCoreScaleTest, WorkersThatItCannotUseDoNotEndIt) {
  std::string job;
  ASSERT_NO_FATAL_FAILURE(GrowToThree(&job));
  for (const SessionId session : (*core_.FindJob(job))->Participants()) {
    DaemonMessage message;
    message.mutable_prepared()->set_job_id(job);
    message.mutable_prepared()->set_attempt(Status(job).attempt());
    if (session == 3) message.mutable_prepared()->add_problems("no such file");
    core_.OnMessage(session, message, now_, &actions_);
  }
  ASSERT_EQ(State(job), QUEUED);
  EXPECT_THAT(LastQueued(job),
              AllOf(StartsWith(kPlannedMove),
                    HasSubstr("with 3 workers it cannot go on, so it goes back "
                              "to 2"),
                    HasSubstr("no such file")));
  Leave(job);
  EXPECT_EQ(State(job), PREPARING);
  EXPECT_EQ(Status(job).workers_size(), 2);
  Run(job);
  EXPECT_FALSE(IsAskedWithin(150)) << "it would fail again";
  EXPECT_EQ(Scale(job, 3), "OK");
  EXPECT_TRUE(IsAskedToSave()) << "people know better";
}

// As one does whose host has too little memory.
TEST_F(ClusterCoreScaleTest, ANewcomerThatDiesAgainAndAgainDoesNotEndIt) {
  std::string job;
  ASSERT_NO_FATAL_FAILURE(GrowToThree(&job));
  core_.OnStreamClosed(3, now_, &actions_);
  EXPECT_THAT(LastQueued(job), HasSubstr("restart 1 of at most 1"));
  all_.pop_back();
  JoinWorkers(4, 4);
  Leave(job);
  ASSERT_EQ(State(job), PREPARING);
  ASSERT_EQ(Status(job).workers_size(), 3);
  core_.OnStreamClosed(4, now_, &actions_);
  ASSERT_EQ(State(job), QUEUED);
  EXPECT_THAT(LastQueued(job),
              AllOf(StartsWith(kPlannedMove),
                    HasSubstr("with 3 workers it cannot go on, so it goes back "
                              "to 2"),
                    HasSubstr("was lost")));
  all_.pop_back();
  Leave(job);
  ASSERT_EQ(State(job), PREPARING);
  EXPECT_EQ(Status(job).workers_size(), 2);
}

TEST_F(ClusterCoreScaleTest, AJobThatWaitsComesBeforeOneThatGrows) {
  JoinWorkers(1, 2);
  Join(kOtherPs, PS, 1, 101);
  const std::string elastic = Queue(Spec(4, 2));
  Wait(absl::Seconds(16));
  Run(elastic);
  ASSERT_EQ(Status(elastic).workers_size(), 2);
  // It waits for three, and one of them comes.
  JoinWorkers(3, 3);
  const std::string other = Queue(Spec(3));
  Wait(absl::Minutes(3));
  Report(elastic, 4);
  EXPECT_EQ(State(elastic), RUNNING) << "nobody has asked for that checkpoint";
  JoinWorkers(4, 5);
  EXPECT_EQ(State(other), PREPARING);
  JoinWorkers(6, 6);
  Wait(absl::Seconds(1));
  Save(elastic, 5);
  EXPECT_EQ(Status(elastic).workers_size(), 3);
}

TEST_F(ClusterCoreScaleTest, AJobThatIsTooLargeForTheClusterStopsNoGrowth) {
  JoinWorkers(1, 2);
  const std::string elastic = Queue(Spec(3, 2));
  Wait(absl::Seconds(16));
  Run(elastic);
  Queue(Spec(50));
  Wait(absl::Minutes(3));
  JoinWorkers(3, 3);
  EXPECT_TRUE(IsAskedWithin(40));
}

TEST_F(ClusterCoreScaleTest, WhatWasSaidSurvivesTheScheduler) {
  JoinWorkers(1, 2);
  const std::string job = Queue(Spec(3));
  ASSERT_EQ(Scale(job, 2), "OK");
  bool written = false;
  for (const ClusterAction& action : actions_) {
    const auto* persist = std::get_if<PersistJob>(&action);
    written |= persist != nullptr && persist->durable;
  }
  EXPECT_TRUE(written);
  EXPECT_EQ((*core_.FindJob(job))->Record(now_).status.wanted_workers(), 2u);
}

TEST_F(ClusterCoreScaleTest, ItIsAnEvent) {
  JoinWorkers(1, 2);
  const std::string job = SubmitAndRun(Spec(1));
  ASSERT_EQ(Scale(job, 2, "hurry"), "OK");
  core_.RecordEvents(now_, &actions_);
  std::vector<std::string> texts;
  for (const ClusterAction& action : actions_) {
    const auto* append = std::get_if<AppendEvent>(&action);
    if (append == nullptr) continue;
    texts.push_back(absl::StrCat(append->event.event.kind(), ": ",
                                 append->event.event.text()));
  }
  EXPECT_THAT(texts, Contains("scale: is to have 2 workers, and has 1: hurry"));
}

}  // namespace
}  // namespace syncline::scheduler
