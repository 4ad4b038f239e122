// Goal: the edges between membership, queue and jobs that the seeded histories
// (tests/simulation/cluster_core_test.cc) cross but do not name. Method: events
// one by one, invented times. This file has the life of members and jobs: who
// is free, lost, forgotten or restored. The parts beside:
// cluster_core_queue_test.cc, cluster_core_address_test.cc (members that are
// asked at their addresses), cluster_core_stream_test.cc (streams that break),
// cluster_core_reattach_test.cc (schedulers that start anew),
// cluster_core_profile_test.cc, cluster_core_quota_test.cc.

#include "scheduler/core/cluster/cluster_core.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/checkpoint_trouble.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduler/core/cluster/cluster_core_fixture.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A process that dies at the same clock each time would do so again.
TEST_F(ClusterCoreTest, TheSameLossTwiceIsNotWorthAThirdTry) {
  Join(1, PS, 0, 21);
  for (int run = 0; run < 3; ++run) {
    SCOPED_TRACE(run);
    const SessionId chief = 10 + run;
    Join(chief, CHIEF, 0, 100 + run);
    const std::string job = Submit(1, 1);
    Prepared(1, job);
    Prepared(chief, job);
    ASSERT_EQ(State(job), RUNNING);
    DaemonMessage report;
    report.mutable_report()->set_job_id(job);
    // The second run gets further.
    report.mutable_report()->mutable_progress()->set_clock(run == 1 ? 8 : 7);
    core_.OnMessage(chief, report, now_, &actions_);
    core_.OnStreamClosed(chief, now_, &actions_);
    Released(1, job);
    EXPECT_EQ((*core_.FindJob(job))->status().exit_code(), 138);
  }
  Join(20, CHIEF, 0, 200);
  const std::string job = Submit(1, 1);
  Prepared(1, job);
  Prepared(20, job);
  DaemonMessage report;
  report.mutable_report()->set_job_id(job);
  report.mutable_report()->mutable_progress()->set_clock(7);
  core_.OnMessage(20, report, now_, &actions_);
  core_.OnStreamClosed(20, now_, &actions_);
  const JobStatus& status = (*core_.FindJob(job))->status();
  EXPECT_EQ(status.exit_code(), 1);
  EXPECT_THAT(status.transitions().rbegin()->reason(),
              AllOf(HasSubstr("last clock 7"), HasSubstr("job j-0003")));
}

// The cause that a failed job was given stays, whatever happens to an earlier
// job later.
TEST_F(ClusterCoreTest, AFailureIsComparedOnceWhenItHappens) {
  const auto start = [&](uint32_t index) {
    Join(1 + index, PS, index, 21 + index);
    Join(10 + index, WORKER, index, 100 + index);
    const std::string job = Submit(1, 1);
    Prepared(1 + index, job);
    Prepared(10 + index, job);
    EXPECT_EQ(State(job), RUNNING);
    DaemonMessage report;
    report.mutable_report()->set_job_id(job);
    report.mutable_report()->mutable_progress()->set_clock(7);
    core_.OnMessage(10 + index, report, now_, &actions_);
    return job;
  };
  const std::string earlier = start(0);
  const std::string later = start(1);
  core_.OnStreamClosed(11, now_, &actions_);
  EXPECT_EQ((*core_.FindJob(later))->status().exit_code(), 138);
  core_.OnStreamClosed(10, now_, &actions_);
  EXPECT_EQ(State(earlier), FAILED);
  Beat(2);
  EXPECT_EQ((*core_.FindJob(later))->status().exit_code(), 138);
}

TEST_F(ClusterCoreTest, AMemberIsFreeOnlyWhenItSaysSo) {
  Join(1, WORKER, 0, 1);
  Join(2, PS, 0, 2);
  const std::string first = Submit(1, 1);
  const std::string second = Submit(1, 1);
  Cancel(first);
  EXPECT_THAT(Commands(), ElementsAre("1 stop", "2 stop"));
  EXPECT_EQ(State(second), QUEUED);
  Released(1, first);
  Released(2, "j-0099");  // of another job
  EXPECT_EQ(State(second), QUEUED);
  Released(2, first);
  EXPECT_EQ(State(second), PREPARING);
  Released(2, first);  // repeated: it works for the second one now
  EXPECT_EQ(core_.engaged_count(), 2);
}

// A worker that saves what it has of a job takes its time.
TEST_F(ClusterCoreTest, WhoSavesTheJobIsWaitedFor) {
  Join(1, WORKER, 0, 1);
  Join(2, PS, 0, 2);
  const std::string job = Submit(1, 1);
  Cancel(job);
  Released(2, job);
  DaemonMessage saves;
  saves.mutable_report()->set_job_id(job);
  saves.mutable_report()->set_activity(absl::StrCat(kSavesAlone, 7));
  for (int i = 0; i < 40; ++i) {
    Tick(absl::Seconds(1));
    ASSERT_THAT(Ended(), IsEmpty()) << i;
    Beat(2);
    core_.OnMessage(1, saves, now_, &actions_);
  }
  saves.mutable_report()->set_activity("evaluating");
  for (int i = 0; i < 10; ++i) {
    Beat(2);
    core_.OnMessage(1, saves, now_, &actions_);
    Tick(absl::Seconds(1));
  }
  EXPECT_THAT(Ended(),
              ElementsAre("1 did not release job j-0001 within 10.0 s"));
}

TEST_F(ClusterCoreTest, WhoDoesNotReleaseLosesItsSessionAndIsStoppedAgain) {
  Join(1, WORKER, 0, 1);
  Join(2, PS, 0, 2);
  const std::string job = Submit(1, 1);
  Cancel(job);
  Released(2, job);
  for (int i = 0; i < 9; ++i) {
    Tick(absl::Seconds(1));
    EXPECT_THAT(Ended(), IsEmpty());
    Beat(1);
    Beat(2);
  }
  Tick(absl::Seconds(1));
  EXPECT_THAT(Ended(),
              ElementsAre("1 did not release job j-0001 within 10.0 s"));
  // The worker comes back and still works for the job, so it is not free.
  Join(3, WORKER, 0, 1, job);
  EXPECT_THAT(Commands(), ElementsAre("3 registered", "3 stop"));
  EXPECT_EQ(State(Submit(1, 1)), QUEUED);
  Released(3, job);
  EXPECT_EQ(State("j-0002"), PREPARING);
}

TEST_F(ClusterCoreTest, ASecondStreamOfAProcessEndsTheFirst) {
  Join(1, WORKER, 0, 1);
  Join(2, PS, 0, 2);
  const std::string job = Submit(1, 1);
  Join(3, WORKER, 0, 1, job);
  EXPECT_THAT(Ended(), ElementsAre(HasSubstr("1 this process opened")));
  EXPECT_EQ(State(job), PREPARING);
  EXPECT_EQ(core_.membership().FindIncarnation(1)->session, 3);
  actions_.clear();
  core_.OnStreamClosed(1, now_, &actions_);  // the old one's end is past
  EXPECT_NE(core_.membership().Find(3), nullptr);
}

TEST_F(ClusterCoreTest, ASecondProcessOnOneStreamEndsIt) {
  Join(1, WORKER, 0, 11);
  Join(1, PS, 0, 12);
  EXPECT_THAT(Commands(), IsEmpty());
  EXPECT_THAT(Ended(), ElementsAre(HasSubstr("1 this stream is that of")));
  EXPECT_EQ(core_.membership().size(), 0u);
  core_.OnStreamClosed(1, now_, &actions_);
  Tick(absl::Seconds(6));  // nothing of it is left to expire
  EXPECT_THAT(Ended(), IsEmpty());
}

TEST_F(ClusterCoreTest, ASilentMemberIsLostWithItsSilenceNamed) {
  Join(1, WORKER, 0, 1);
  Join(2, PS, 0, 2);
  const std::string job = Submit(1, 1);
  now_ += absl::Seconds(4);
  Beat(1);
  Tick(absl::Milliseconds(1200));
  EXPECT_EQ(State(job), FAILED);
  EXPECT_THAT((*core_.FindJob(job))->status().transitions(2).reason(),
              HasSubstr("ps 0 at h:1 (incarnation 0x9758) was "
                        "lost: silent for 5.2 s"));
  EXPECT_THAT(Ended(), ElementsAre(HasSubstr("2 lease expired")));
}

TEST_F(ClusterCoreTest, ARestartFailsWhatRanAndKeepsTheQueue) {
  std::vector<StoredJob> jobs(3);
  const JobState states[] = {SUCCEEDED, RUNNING, QUEUED};
  for (int i = 0; i < 3; ++i) {
    jobs[i].status.set_job_id(absl::StrCat("j-000", i + 1));
    jobs[i].status.set_state(states[i]);
    jobs[i].status.mutable_spec()->mutable_resources()->set_workers(1);
    jobs[i].status.add_transitions()->set_state(states[i]);
  }
  core_.Restore(jobs, {}, now_, &actions_);
  EXPECT_EQ(State("j-0001"), SUCCEEDED);
  EXPECT_EQ(State("j-0002"), FAILED);
  EXPECT_EQ((*core_.FindJob("j-0002"))->status().exit_code(), 138);
  EXPECT_EQ(State("j-0003"), QUEUED);
  EXPECT_EQ(core_.NextJobId(), "j-0004");
  Join(1, WORKER, 0, 1, "j-0002");
  EXPECT_THAT(Commands(), ElementsAre("1 registered", "1 stop"));
  Released(1, "j-0002");
  EXPECT_THAT(Commands(), ElementsAre("1 prepare"));
}

TEST_F(ClusterCoreTest, OldJobsAreForgottenAndTheirIdsNotGivenAgain) {
  const std::string old = Submit(1, 1);
  Cancel(old);
  const std::string queued = Submit(1, 1);
  Tick(absl::Hours(2));
  ASSERT_EQ(actions_.size(), 1);
  const auto& deleted = std::get<DeleteJob>(actions_[0]);
  EXPECT_EQ(deleted.job_id, old);
  EXPECT_TRUE(deleted.record);
  EXPECT_EQ(core_.FindJob(old).status().code(), absl::StatusCode::kNotFound);
  // The newest one is kept for its number.
  Cancel(queued);
  Tick(absl::Hours(2));
  EXPECT_TRUE(core_.FindJob(queued).ok());
  ClusterCore next(CoreOptions());
  StoredJob stored;
  stored.status = (*core_.FindJob(queued))->status();
  next.Restore({stored}, {"j-0007", "nonsense"}, now_, &actions_);
  EXPECT_EQ(next.NextJobId(), "j-0008");
}

TEST_F(ClusterCoreTest, FilesExpireAfterTheJobAndNotBefore) {
  const std::string job = Submit(1, 1);
  Artifact artifact;
  artifact.set_name("model.onnx");
  ASSERT_TRUE(core_.AddArtifact(job, artifact, &actions_).ok());
  const auto deleted = [&] {
    for (const ClusterAction& action : actions_) {
      if (std::holds_alternative<DeleteJob>(action)) return true;
    }
    return false;
  };
  Tick(absl::Hours(5));
  EXPECT_FALSE(deleted());  // still queued
  Cancel(job);
  Tick(absl::Minutes(59));
  EXPECT_FALSE(deleted());
  Tick(absl::Minutes(1));
  EXPECT_TRUE(deleted());
  EXPECT_THAT((*core_.FindJob(job))->status().artifacts(), IsEmpty());
  Tick(absl::Minutes(1));
  EXPECT_FALSE(deleted());  // once
}

TEST_F(ClusterCoreTest, UploadsComeFromTheJobsOwnProcesses) {
  Join(1, WORKER, 0, 11);
  Join(2, PS, 0, 12);
  Join(3, WORKER, 1, 13);
  const std::string job = Submit(1, 1);
  EXPECT_TRUE(core_.CheckUpload(UploadOf(job, 11)).ok());
  EXPECT_EQ(core_.CheckUpload(UploadOf(job, 13)).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(core_.CheckUpload(UploadOf(job, 99)).code(),
            absl::StatusCode::kFailedPrecondition);
  UploadBegin strange = UploadOf(job, 11);
  strange.set_job_secret("fedcba9876543210");
  EXPECT_EQ(core_.CheckUpload(strange).code(),
            absl::StatusCode::kPermissionDenied);
  strange = UploadOf(job, 11);
  strange.set_attempt(2);
  EXPECT_EQ(core_.CheckUpload(strange).code(),
            absl::StatusCode::kFailedPrecondition);
  Cancel(job);
  EXPECT_TRUE(
      core_.CheckUpload(UploadOf(job, 11)).ok());  // its log, before it is free
  Released(1, job);
  EXPECT_FALSE(core_.CheckUpload(UploadOf(job, 11)).ok());
}

TEST_F(ClusterCoreTest, WhoIsStoppedWhenItComesBackUploadsNothing) {
  Join(1, WORKER, 0, 11);
  Join(2, PS, 0, 12);
  const std::string job = Submit(1, 1);
  core_.OnStreamClosed(1, now_, &actions_);
  Join(3, WORKER, 0, 11, job);
  EXPECT_EQ(core_.CheckUpload(UploadOf(job, 11)).code(),
            absl::StatusCode::kFailedPrecondition);
  // A member names the job that it worked for. The name must not become a path.
  Join(4, WORKER, 1, 14, "../outside");
  EXPECT_EQ(core_.CheckUpload(UploadOf("../outside", 14)).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(ClusterCoreTest, ShutdownReachesThoseWhoComeLate) {
  Join(1, WORKER, 0, 1);
  actions_.clear();
  core_.Shutdown(3, "done", &actions_);
  EXPECT_THAT(Commands(), ElementsAre("1 shutdown"));
  Join(2, PS, 0, 2);
  EXPECT_THAT(Commands(), ElementsAre("2 registered", "2 shutdown"));
  EXPECT_EQ(core_.shut_down_count(), 2);
  EXPECT_EQ(core_.CheckAccepting().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ClusterCoreTest, NobodyKnowsAJobBeforeItIsSubmitted) {
  ASSERT_TRUE(core_.Prepare({}, {}, {}, core_.NextJobId(), now_).ok());
  EXPECT_EQ(core_.FindJob("j-0001").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(core_.FindJob("").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(core_.FindJob("j-1").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(core_.Cancel("x", "", now_, &actions_).code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace syncline::scheduler
