// Goal: a cordoned member gets no job; a drained one's job saves and goes on
// elsewhere, as a planned move, or is refused by name. Method: a cluster with
// and without spare members, events one by one.

#include <string>
#include <vector>

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
using ::testing::Not;
using ::testing::StartsWith;
using Use = SetMemberUseRequest::Use;

constexpr SessionId kChief = 1;
constexpr SessionId kPs0 = 2;
constexpr SessionId kPs1 = 3;

SetMemberUseRequest UseOf(TaskType type, uint32_t index, Use use) {
  SetMemberUseRequest request;
  request.mutable_task()->set_type(type);
  request.mutable_task()->set_index(index);
  request.set_use(use);
  request.set_reason("new kernel");
  return request;
}

class ClusterCoreUseTest : public ClusterCoreTest {
 protected:
  ClusterCoreUseTest() {
    Join(kChief, CHIEF, 0, 1);
    Join(kPs0, PS, 0, 2);
  }
  JobSpec Saving() const {
    JobSpec spec;
    spec.mutable_resources()->set_workers(1);
    spec.mutable_resources()->set_ps(1);
    spec.mutable_checkpoint()->set_every_clocks(1000);
    spec.mutable_checkpoint()->set_directory("/c");
    return spec;
  }
  std::string SubmitAndRun(const JobSpec& spec) {
    auto job = core_.Prepare(spec, {}, {}, core_.NextJobId(), now_);
    const std::string id = job->status.job_id();
    core_.Submit(*job, now_, &actions_);
    Prepared(kChief, id);
    Prepared(kPs0, id);
    EXPECT_EQ(State(id), RUNNING);
    return id;
  }
  // "OK", or why not.
  std::string Set(const SetMemberUseRequest& request) {
    actions_.clear();
    const auto checked = core_.CheckMemberUse(request, now_);
    if (!checked.ok()) return std::string(checked.status().message());
    core_.SetMemberUse(request, now_, &actions_);
    return absl::StrCat("OK ", checked->job_id());
  }
  void Report(const std::string& job, uint32_t attempt,
              const CheckpointInfo& whole, const std::string& error) {
    DaemonMessage message;
    message.mutable_report()->set_job_id(job);
    message.mutable_report()->set_attempt(attempt);
    if (error.empty()) *message.mutable_report()->mutable_checkpoint() = whole;
    message.mutable_report()->set_checkpoint_error(error);
    actions_.clear();
    core_.OnMessage(kChief, message, now_, &actions_);
  }
  void Whole(const std::string& job, int64_t clock, uint32_t attempt = 1) {
    CheckpointInfo whole;
    whole.set_path(absl::StrCat("/c/", clock));
    whole.set_clock(clock);
    Report(job, attempt, whole, "");
  }
  std::string Reason(const std::string& job) const {
    return (*core_.FindJob(job))->status().transitions().rbegin()->reason();
  }
  void ReleasedAttempt(SessionId session, const std::string& job,
                       uint32_t attempt) {
    DaemonMessage message;
    message.mutable_done()->set_job_id(job);
    message.mutable_done()->set_released(true);
    message.mutable_done()->set_attempt(attempt);
    core_.OnMessage(session, message, now_, &actions_);
  }
};

TEST_F(ClusterCoreUseTest, ACordonedMemberGetsNoJob) {
  EXPECT_EQ(Set(UseOf(PS, 0, SetMemberUseRequest::CORDON)), "OK ");
  const std::string job = Submit(1, 1);
  EXPECT_EQ(State(job), QUEUED);
  EXPECT_THAT(WaitingFor(job),
              HasSubstr("not counted: ps 0 is cordoned (new kernel)"));
  const ClusterStatus cluster = core_.Cluster(now_);
  EXPECT_EQ(cluster.members(1).use(), SetMemberUseRequest::CORDON);
  EXPECT_EQ(cluster.members(1).use_reason(), "new kernel");
  EXPECT_EQ(Set(UseOf(PS, 0, SetMemberUseRequest::SCHEDULE)), "OK ");
  EXPECT_EQ(State(job), PREPARING);
  EXPECT_EQ(core_.Cluster(now_).members(1).use(),
            SetMemberUseRequest::USE_UNSPECIFIED);
}

TEST_F(ClusterCoreUseTest, AUseIsOfTheTaskAndSurvivesProcesses) {
  EXPECT_EQ(Set(UseOf(PS, 0, SetMemberUseRequest::DRAIN)), "OK ");
  core_.OnStreamClosed(kPs0, now_, &actions_);
  Join(9, PS, 0, 99);
  EXPECT_EQ(State(Submit(1, 1)), QUEUED);
  core_.OnStreamClosed(9, now_, &actions_);
  // A member that is not there can be uncordoned, and nothing else.
  EXPECT_THAT(Set(UseOf(PS, 0, SetMemberUseRequest::CORDON)),
              HasSubstr("the cluster has no ps 0"));
  EXPECT_EQ(Set(UseOf(PS, 0, SetMemberUseRequest::SCHEDULE)), "OK ");
  EXPECT_THAT(Set(UseOf(PS, 0, SetMemberUseRequest::SCHEDULE)),
              HasSubstr("the cluster has no ps 0"));
}

TEST_F(ClusterCoreUseTest, AUseSurvivesTheScheduler) {
  ClusterCore next(CoreOptions());
  next.RestoreUses({UseOf(PS, 0, SetMemberUseRequest::DRAIN)});
  next.Restore({}, {}, now_, &actions_);
  SetMemberUseRequest request = UseOf(PS, 0, SetMemberUseRequest::SCHEDULE);
  EXPECT_TRUE(next.CheckMemberUse(request, now_).ok());
}

TEST_F(ClusterCoreUseTest, ADrainedMembersJobSavesAndGoesOnElsewhere) {
  const std::string job = SubmitAndRun(Saving());
  Join(kPs1, PS, 1, 3);
  EXPECT_EQ(Set(UseOf(PS, 0, SetMemberUseRequest::DRAIN)), "OK j-0001");
  EXPECT_THAT(Commands(), ElementsAre("1 write checkpoint"));
  // It is asked for once.
  Tick(absl::Milliseconds(200));
  EXPECT_THAT(Commands(), IsEmpty());
  Whole(job, 40);
  EXPECT_THAT(Commands(), ElementsAre("1 stop", "2 stop"));
  EXPECT_EQ(State(job), QUEUED);
  EXPECT_THAT(Reason(job),
              AllOf(StartsWith(kPlannedMove),
                    HasSubstr("ps 0 is drained (new kernel); attempt 2 goes on "
                              "from the checkpoint at clock 40")));
  ReleasedAttempt(kChief, job, 1);
  ReleasedAttempt(kPs0, job, 1);
  EXPECT_THAT(Commands(), Contains("3 prepare"));
  EXPECT_EQ(State(job), PREPARING);
  EXPECT_EQ(core_.Cluster(now_).members(1).job_id(), "");
  const JobStatus& status = (*core_.FindJob(job))->status();
  EXPECT_EQ(status.ps(0).member().task().index(), 1u);
  EXPECT_EQ(status.attempt(), 2u);
}

TEST_F(ClusterCoreUseTest, AJobThatNothingElseIsFreeForWaitsWithThatReason) {
  const std::string job = SubmitAndRun(Saving());
  EXPECT_EQ(Set(UseOf(CHIEF, 0, SetMemberUseRequest::DRAIN)), "OK j-0001");
  Whole(job, 40);
  ReleasedAttempt(kChief, job, 1);
  ReleasedAttempt(kPs0, job, 1);
  EXPECT_EQ(State(job), QUEUED);
  EXPECT_THAT(WaitingFor(job), HasSubstr("chief 0 is drained (new kernel)"));
  Set(UseOf(CHIEF, 0, SetMemberUseRequest::SCHEDULE));
  EXPECT_EQ(State(job), PREPARING);
}

TEST_F(ClusterCoreUseTest, ACheckpointThatFailsIsAskedForAgain) {
  const std::string job = SubmitAndRun(Saving());
  Set(UseOf(PS, 0, SetMemberUseRequest::DRAIN));
  Report(job, 1, {}, "at clock 3: disk full");
  EXPECT_EQ(State(job), RUNNING);
  Tick(absl::Seconds(1));
  EXPECT_THAT(Commands(), IsEmpty());
  Beat(kChief);
  Beat(kPs0);
  Tick(absl::Seconds(4));
  EXPECT_THAT(Commands(), ElementsAre("1 write checkpoint"));
  Whole(job, 9);
  EXPECT_EQ(State(job), QUEUED);
}

TEST_F(ClusterCoreUseTest, AJobThatPreparesIsMovedOnceItRuns) {
  auto stored = core_.Prepare(Saving(), {}, {}, core_.NextJobId(), now_);
  const std::string job = stored->status.job_id();
  core_.Submit(*stored, now_, &actions_);
  EXPECT_EQ(Set(UseOf(PS, 0, SetMemberUseRequest::DRAIN)), "OK j-0001");
  EXPECT_THAT(Commands(), IsEmpty());
  Prepared(kChief, job);
  Prepared(kPs0, job);
  Tick(absl::Milliseconds(200));
  EXPECT_THAT(Commands(), ElementsAre("1 write checkpoint"));
}

TEST_F(ClusterCoreUseTest, AJobThatHasMadeItsLastStepIsNotMoved) {
  auto stored = core_.Prepare(Saving(), {}, {}, core_.NextJobId(), now_);
  const std::string job = stored->status.job_id();
  core_.Submit(*stored, now_, &actions_);
  DaemonMessage prepared;
  prepared.mutable_prepared()->set_job_id(job);
  prepared.mutable_prepared()->set_clocks_total(100);
  core_.OnMessage(kChief, prepared, now_, &actions_);
  Prepared(kPs0, job);
  ASSERT_EQ(State(job), RUNNING);
  Set(UseOf(PS, 0, SetMemberUseRequest::DRAIN));
  EXPECT_THAT(Commands(), ElementsAre("1 write checkpoint"));
  Whole(job, 100);
  EXPECT_EQ(State(job), RUNNING) << "it stores its results";
  DaemonMessage progress;
  progress.mutable_report()->set_job_id(job);
  progress.mutable_report()->mutable_progress()->set_clock(100);
  core_.OnMessage(kChief, progress, now_, &actions_);
  for (int i = 0; i < 8; ++i) {
    Beat(kChief);
    Beat(kPs0);
    Tick(absl::Seconds(1));
    EXPECT_THAT(Commands(), IsEmpty());
  }
  EXPECT_EQ(State(job), RUNNING);
}

TEST_F(ClusterCoreUseTest, AMoveThatIsTakenBackIsStillMade) {
  const std::string job = SubmitAndRun(Saving());
  Set(UseOf(PS, 0, SetMemberUseRequest::DRAIN));
  Set(UseOf(PS, 0, SetMemberUseRequest::SCHEDULE));
  Whole(job, 9);
  ReleasedAttempt(kChief, job, 1);
  ReleasedAttempt(kPs0, job, 1);
  EXPECT_EQ(State(job), PREPARING) << "on the same members";
}

TEST_F(ClusterCoreUseTest, AJobThatCannotLeaveIsNamed) {
  JobSpec unsaved = Saving();
  unsaved.clear_checkpoint();
  const std::string job = SubmitAndRun(unsaved);
  DaemonMessage message;
  message.mutable_report()->set_job_id(job);
  WorkerProgress* progress = message.mutable_report()->mutable_progress();
  progress->set_clock(100);
  core_.OnMessage(kChief, message, now_, &actions_);
  EXPECT_THAT(Set(UseOf(PS, 0, SetMemberUseRequest::DRAIN)),
              AllOf(HasSubstr("job j-0001 cannot leave ps 0: it has no "
                              "`checkpoint` to go on from"),
                    HasSubstr("cordon ps 0")));
  EXPECT_EQ(core_.Cluster(now_).members(1).use(),
            SetMemberUseRequest::USE_UNSPECIFIED);
  EXPECT_EQ(Set(UseOf(PS, 0, SetMemberUseRequest::CORDON)), "OK ");
}

TEST_F(ClusterCoreUseTest, APsWithAFolderOfItsOwnCannotBeLeft) {
  JobSpec own = Saving();
  own.mutable_checkpoint()->clear_directory();
  SubmitAndRun(own);
  EXPECT_THAT(Set(UseOf(PS, 0, SetMemberUseRequest::DRAIN)),
              HasSubstr("--checkpoint-dir"));
  EXPECT_THAT(Set(UseOf(CHIEF, 0, SetMemberUseRequest::DRAIN)),
              Not(HasSubstr("--checkpoint-dir")));
}

// More than the limit of restarts, and in a job that asks for none.
TEST_F(ClusterCoreUseTest, MovesAreNotCountedAsRestarts) {
  const std::string job = SubmitAndRun(Saving());
  for (uint32_t attempt = 1; attempt <= 6; ++attempt) {
    Set(UseOf(PS, 0, SetMemberUseRequest::DRAIN));
    Tick(absl::Seconds(1));
    Whole(job, 10 * attempt, attempt);
    ASSERT_EQ(State(job), QUEUED) << attempt;
    Set(UseOf(PS, 0, SetMemberUseRequest::SCHEDULE));
    ReleasedAttempt(kChief, job, attempt);
    ReleasedAttempt(kPs0, job, attempt);
    ASSERT_EQ(State(job), PREPARING) << attempt;
    for (const SessionId session : {kChief, kPs0}) {
      DaemonMessage message;
      message.mutable_prepared()->set_job_id(job);
      message.mutable_prepared()->set_attempt(attempt + 1);
      core_.OnMessage(session, message, now_, &actions_);
    }
    ASSERT_EQ(State(job), RUNNING) << attempt;
  }
}

}  // namespace
}  // namespace syncline::scheduler
