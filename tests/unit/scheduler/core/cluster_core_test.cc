// Goal: the edges between membership, queue and jobs that the seeded histories
// (tests/simulation/cluster_core_test.cc) cross but do not name. Method: events
// one by one, invented times.

#include "scheduler/core/cluster_core.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/core/message_sizes.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ClusterCore::Options CoreOptions() {
  ClusterCore::Options options;
  options.version = "0.1.0";
  options.queue_max = 4;
  options.keep = absl::Hours(1);
  return options;
}

class ClusterCoreTest : public ::testing::Test {
 protected:
  explicit ClusterCoreTest(const ClusterCore::Options& options = CoreOptions())
      : core_(options) {
    core_.Restore({}, {}, now_, &actions_);
  }

  void Join(SessionId session, TaskType type, uint32_t index,
            uint64_t incarnation, const std::string& job_id = "") {
    Register request;
    Member* member = request.mutable_member();
    member->mutable_task()->set_type(type);
    member->mutable_task()->set_index(index);
    member->set_address("h:1");
    member->set_incarnation(incarnation);
    member->set_version("0.1.0");
    request.set_job_id(job_id);
    actions_.clear();
    core_.OnRegister(session, request, now_, &actions_);
  }
  std::string Submit(uint32_t workers, uint32_t ps, bool with_test = false) {
    JobSpec spec;
    if (with_test) spec.mutable_data()->mutable_test();
    spec.mutable_resources()->set_workers(workers);
    spec.mutable_resources()->set_ps(ps);
    auto job = core_.Prepare(spec, {}, {}, core_.NextJobId(), now_);
    EXPECT_TRUE(job.ok()) << job.status();
    const std::string id = job->status.job_id();
    actions_.clear();
    core_.Submit(*job, now_, &actions_);
    return id;
  }
  void Prepared(SessionId session, const std::string& job_id) {
    DaemonMessage message;
    message.mutable_prepared()->set_job_id(job_id);
    actions_.clear();
    core_.OnMessage(session, message, now_, &actions_);
  }
  void Released(SessionId session, const std::string& job_id) {
    DaemonMessage message;
    message.mutable_done()->set_job_id(job_id);
    message.mutable_done()->set_released(true);
    actions_.clear();
    core_.OnMessage(session, message, now_, &actions_);
  }
  void Beat(SessionId session) {
    DaemonMessage message;
    message.mutable_heartbeat();
    core_.OnMessage(session, message, now_, &actions_);
  }
  void Tick(absl::Duration later) {
    now_ += later;
    actions_.clear();
    core_.OnTick(now_, &actions_);
  }
  // While these are heard of.
  void Pass(absl::Duration time, std::vector<SessionId> sessions) {
    for (const absl::Time end = now_ + time; now_ < end;) {
      for (const SessionId session : sessions) Beat(session);
      Tick(absl::Seconds(1));
    }
  }
  void Cancel(const std::string& job_id) {
    actions_.clear();
    EXPECT_TRUE(core_.Cancel(job_id, "", now_, &actions_).ok());
  }
  JobState State(const std::string& job_id) const {
    return (*core_.FindJob(job_id))->status().state();
  }
  std::string WaitingFor(const std::string& job_id) const {
    return (*core_.FindJob(job_id))->status().waiting_for();
  }
  // "1 registered" ...: the commands of the last event.
  std::vector<std::string> Commands() const {
    static constexpr const char* kNames[] = {
        "", "registered", "prepare", "run", "stop", "shutdown", "profile"};
    std::vector<std::string> commands;
    for (const ClusterAction& action : actions_) {
      if (auto* send = std::get_if<SendCommand>(&action)) {
        commands.push_back(absl::StrCat(send->session, " ",
                                        kNames[send->message.command_case()]));
      }
    }
    return commands;
  }
  // The sessions that the last event ended, and why.
  std::vector<std::string> Ended() const {
    std::vector<std::string> ended;
    for (const ClusterAction& action : actions_) {
      if (auto* end = std::get_if<EndSession>(&action)) {
        ended.push_back(absl::StrCat(end->session, " ", end->status.message()));
      }
    }
    return ended;
  }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  ClusterActions actions_;
  ClusterCore core_;
};

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

TEST_F(ClusterCoreTest, TheQueueSaysWhatItWaitsFor) {
  const std::string first = Submit(2, 1);
  const std::string second = Submit(1, 1);
  Join(1, WORKER, 0, 1);
  Join(2, PS, 0, 2);
  EXPECT_THAT(WaitingFor(first), AllOf(HasSubstr("needs 2 workers and 1 ps"),
                                       HasSubstr("free: 1 worker, 1 ps"),
                                       HasSubstr("than this cluster has")));
  EXPECT_THAT(WaitingFor(second), HasSubstr("1 job ahead; "));
  Join(3, CHIEF, 0, 3);
  EXPECT_EQ(State(first), PREPARING);
  EXPECT_EQ(WaitingFor(first), "chief 0 at h:1; worker 0 at h:1; ps 0 at h:1");
  EXPECT_EQ(WaitingFor(second),
            "needs 1 worker and 1 ps; free: 0 workers, 0 ps");
  EXPECT_EQ((*core_.FindJob(first))->status().workers(0).member().task().type(),
            CHIEF);
}

// A job that waits for a running one holds up the next; one that is larger than
// the cluster does not, once the cluster has come together.
TEST_F(ClusterCoreTest, AJobLargerThanTheClusterIsOvertaken) {
  const std::string large = Submit(3, 1);
  const std::string small = Submit(1, 1);
  const std::string both = Submit(2, 1);
  const std::string last = Submit(1, 1);
  Join(1, WORKER, 0, 1);
  Join(2, PS, 0, 2);
  Join(3, WORKER, 1, 3);
  EXPECT_EQ(State(small), QUEUED);  // more may be on their way
  Pass(absl::Seconds(14), {1, 2, 3});
  EXPECT_EQ(State(small), QUEUED);
  Pass(absl::Seconds(1), {1, 2, 3});
  EXPECT_EQ(State(large), QUEUED);
  EXPECT_EQ(State(small), PREPARING);
  EXPECT_EQ(State(both), QUEUED);
  EXPECT_EQ(State(last), QUEUED) << "it would starve the one before it";
  EXPECT_THAT(WaitingFor(both), HasSubstr("1 job ahead"));
  // It has kept its place.
  Join(4, WORKER, 2, 4);
  Cancel(small);
  Released(1, small);
  Released(2, small);
  EXPECT_EQ(State(large), PREPARING);
  EXPECT_EQ(State(both), QUEUED);
}

TEST_F(ClusterCoreTest, AMemberThatIsLostMayComeBackBeforeItsJobIsOvertaken) {
  Join(1, WORKER, 0, 1);
  Join(2, PS, 0, 2);
  Join(3, WORKER, 1, 3);
  Pass(absl::Seconds(20), {1, 2, 3});
  core_.OnStreamClosed(3, now_, &actions_);
  const std::string pair = Submit(2, 1);
  const std::string single = Submit(1, 1);
  EXPECT_EQ(State(single), QUEUED);
  Join(4, WORKER, 1, 4);
  EXPECT_EQ(State(pair), PREPARING);
  EXPECT_EQ(State(single), QUEUED);
}

TEST_F(ClusterCoreTest, WhoComesAndGoesDoesNotHoldUpTheOthersForEver) {
  Join(1, WORKER, 0, 1);
  Join(2, PS, 0, 2);
  Submit(5, 1);
  const std::string small = Submit(1, 1);
  for (SessionId session = 10; State(small) == QUEUED && session < 20;
       ++session) {
    Join(session, EVALUATOR, 0, session);
    Pass(absl::Seconds(4), {1, 2, session});
    core_.OnStreamClosed(session, now_, &actions_);
  }
  EXPECT_EQ(State(small), PREPARING);
}

TEST_F(ClusterCoreTest, EvaluatorsAreNeitherWorkersNorPs) {
  Join(1, EVALUATOR, 0, 1);
  Join(2, PS, 0, 2);
  EXPECT_EQ(State(Submit(1, 1)), QUEUED);
}

TEST_F(ClusterCoreTest, AFreeEvaluatorIsTakenByWhoHasSomethingToEvaluate) {
  for (const SessionId worker : {1, 2, 3}) Join(worker, WORKER, worker, worker);
  for (const SessionId ps : {4, 5, 6}) Join(ps, PS, ps, ps);
  Join(7, EVALUATOR, 0, 7);
  const auto has_evaluator = [&](const std::string& job_id) {
    return (*core_.FindJob(job_id))->status().has_evaluator();
  };
  EXPECT_FALSE(has_evaluator(Submit(1, 1))) << "nothing to evaluate";
  const std::string evaluated = Submit(1, 1, /*with_test=*/true);
  EXPECT_TRUE(has_evaluator(evaluated));
  EXPECT_THAT(Commands(), ElementsAre("2 prepare", "7 prepare", "5 prepare"));
  const std::string other = Submit(1, 1, /*with_test=*/true);
  EXPECT_EQ(State(other), PREPARING) << "its chief evaluates";
  EXPECT_FALSE(has_evaluator(other));
  // It is stopped and freed like the others.
  Cancel(evaluated);
  EXPECT_THAT(Commands(), ElementsAre("2 stop", "7 stop", "5 stop"));
  for (const SessionId session : {2, 7, 5}) Released(session, evaluated);
  EXPECT_TRUE(has_evaluator(Submit(1, 1, /*with_test=*/true)));
}

TEST(ClusterCoreEvaluatorTest, OneThatIsOnItsWayIsWaitedForNotForEver) {
  ClusterCore::Options options = CoreOptions();
  options.expects_evaluator = true;
  absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  for (const bool comes : {true, false}) {
    ClusterCore core(options);
    ClusterActions actions;
    core.Restore({}, {}, now, &actions);
    const auto join = [&](SessionId session, TaskType type) {
      Register request;
      request.mutable_member()->mutable_task()->set_type(type);
      request.mutable_member()->set_address("h:1");
      request.mutable_member()->set_incarnation(session);
      request.mutable_member()->set_version("0.1.0");
      core.OnRegister(session, request, now, &actions);
    };
    JobSpec spec;
    spec.mutable_data()->mutable_test();
    spec.mutable_resources()->set_workers(1);
    spec.mutable_resources()->set_ps(1);
    auto job = core.Prepare(spec, {}, {}, core.NextJobId(), now);
    ASSERT_TRUE(job.ok());
    core.Submit(*job, now, &actions);
    join(1, WORKER);
    join(2, PS);
    const JobStatus& status = (*core.FindJob("j-0001"))->status();
    EXPECT_EQ(status.state(), QUEUED);
    EXPECT_EQ(status.waiting_for(),
              "the cluster's evaluator, which may still come");
    if (comes) {
      join(3, EVALUATOR);
    } else {
      for (int second = 0; second < 15; ++second) {
        now += absl::Seconds(1);
        for (const SessionId session : {1, 2}) {
          DaemonMessage beat;
          beat.mutable_heartbeat();
          core.OnMessage(session, beat, now, &actions);
        }
        core.OnTick(now, &actions);
      }
    }
    EXPECT_EQ(status.state(), PREPARING);
    EXPECT_EQ(status.has_evaluator(), comes);
  }
}

// A loss keeps the others behind it no longer than a job without test data.
TEST(ClusterCoreEvaluatorTest, AJobThatIsTooLargeWaitsForNone) {
  ClusterCore::Options options = CoreOptions();
  options.expects_evaluator = true;
  for (const bool with_test : {false, true}) {
    absl::Time now = absl::UnixEpoch() + absl::Hours(1);
    ClusterCore core(options);
    ClusterActions actions;
    core.Restore({}, {}, now, &actions);
    const auto submit = [&](uint32_t workers, bool evaluated) {
      JobSpec spec;
      if (evaluated) spec.mutable_data()->mutable_test();
      spec.mutable_resources()->set_workers(workers);
      spec.mutable_resources()->set_ps(1);
      auto job = core.Prepare(spec, {}, {}, core.NextJobId(), now);
      ASSERT_TRUE(job.ok());
      core.Submit(*job, now, &actions);
    };
    submit(9, with_test);
    submit(1, /*evaluated=*/false);
    for (const auto& [session, type] :
         {std::pair(1, WORKER), {2, PS}, {3, WORKER}}) {
      Register request;
      request.mutable_member()->mutable_task()->set_type(type);
      request.mutable_member()->set_address("h:1");
      request.mutable_member()->set_incarnation(session);
      request.mutable_member()->set_version("0.1.0");
      core.OnRegister(session, request, now, &actions);
    }
    for (int second = 0; second < 15; ++second) {
      if (second == 14) core.OnStreamClosed(3, now, &actions);
      now += absl::Seconds(1);
      for (const SessionId session : {1, 2, 3}) {
        DaemonMessage beat;
        beat.mutable_heartbeat();
        core.OnMessage(session, beat, now, &actions);
      }
      core.OnTick(now, &actions);
    }
    EXPECT_EQ((*core.FindJob("j-0001"))->status().state(), QUEUED);
    EXPECT_EQ((*core.FindJob("j-0002"))->status().state(), PREPARING);
  }
}

TEST_F(ClusterCoreTest, AFullQueueIsRefused) {
  for (int i = 0; i < 4; ++i) Submit(1, 1);
  EXPECT_EQ(core_.CheckAccepting().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(core_.Prepare({}, {}, {}, "j-0009", now_).status().code(),
            absl::StatusCode::kResourceExhausted);
  Cancel("j-0001");
  EXPECT_TRUE(core_.CheckAccepting().ok());
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
  // It comes back, still at it: not free.
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
  EXPECT_TRUE(core_.CheckUpload(job, 11).ok());
  EXPECT_EQ(core_.CheckUpload(job, 13).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(core_.CheckUpload(job, 99).code(),
            absl::StatusCode::kFailedPrecondition);
  Cancel(job);
  EXPECT_TRUE(core_.CheckUpload(job, 11).ok());  // its log, before it is free
  Released(1, job);
  EXPECT_FALSE(core_.CheckUpload(job, 11).ok());
}

TEST_F(ClusterCoreTest, WhoIsStoppedWhenItComesBackUploadsNothing) {
  Join(1, WORKER, 0, 11);
  Join(2, PS, 0, 12);
  const std::string job = Submit(1, 1);
  core_.OnStreamClosed(1, now_, &actions_);
  Join(3, WORKER, 0, 11, job);
  EXPECT_EQ(core_.CheckUpload(job, 11).code(),
            absl::StatusCode::kFailedPrecondition);
  // It says what it worked for; no path may come of it.
  Join(4, WORKER, 1, 14, "../outside");
  EXPECT_EQ(core_.CheckUpload("../outside", 14).code(),
            absl::StatusCode::kFailedPrecondition);
}

// A core that asks members at their addresses; answers by hand.
class ClusterCoreAddressTest : public ClusterCoreTest {
 protected:
  ClusterCoreAddressTest() : ClusterCoreTest(Options()) {}
  static ClusterCore::Options Options() {
    ClusterCore::Options options = CoreOptions();
    options.confirms_addresses = true;
    return options;
  }
  std::vector<SessionId> Asked() const {
    std::vector<SessionId> asked;
    for (const ClusterAction& action : actions_) {
      if (auto* confirm = std::get_if<ConfirmAddress>(&action)) {
        EXPECT_EQ(confirm->address, "h:1");
        EXPECT_EQ(
            confirm->incarnation,
            core_.membership().Find(confirm->session)->member.incarnation());
        asked.push_back(confirm->session);
      }
    }
    return asked;
  }
  // How many lines the log gets.
  int Answer(SessionId session, const absl::Status& answer) {
    actions_.clear();
    core_.OnAddressAnswer(session, answer, now_, &actions_);
    int doubts = 0;
    for (const ClusterAction& action : actions_) {
      doubts += std::holds_alternative<AddressDoubted>(action) ? 1 : 0;
    }
    return doubts;
  }
  std::string JobOf(SessionId session) const {
    const Task& task = core_.membership().Find(session)->member.task();
    const ClusterStatus cluster = core_.Cluster(now_);
    for (const auto& entry : cluster.members()) {
      if (entry.member().task().type() == task.type()) return entry.job_id();
    }
    return "nobody";
  }
};

TEST_F(ClusterCoreAddressTest, OnlyConfirmedMembersAreGivenAJob) {
  Join(1, WORKER, 0, 11);
  EXPECT_THAT(Asked(), ElementsAre(1));
  Join(2, PS, 0, 12);
  EXPECT_THAT(Asked(), ElementsAre(2));
  const std::string job = Submit(1, 1);
  EXPECT_EQ(State(job), QUEUED);
  EXPECT_THAT(WaitingFor(job), HasSubstr("free: 0 workers, 0 ps"));
  Answer(1, absl::OkStatus());
  EXPECT_EQ(State(job), QUEUED);
  EXPECT_EQ(JobOf(1), "");
  EXPECT_THAT(JobOf(2), HasSubstr("(not confirmed: it is being asked)"));
  Answer(2, absl::OkStatus());
  EXPECT_EQ(State(job), PREPARING);
  EXPECT_EQ(JobOf(2), job);
}

TEST_F(ClusterCoreAddressTest, OneThatDoesNotAnswerIsAskedAgainAndLoggedOnce) {
  Join(1, WORKER, 0, 11);
  Join(2, PS, 0, 12);
  Answer(1, absl::OkStatus());
  const std::string job = Submit(1, 1);
  EXPECT_EQ(Answer(2, absl::UnavailableError("no route")), 1);
  EXPECT_THAT(JobOf(2), AllOf(HasSubstr("(not confirmed: "),
                              HasSubstr("no route"), HasSubstr("--advertise")));
  Beat(1);
  Beat(2);
  Tick(absl::Seconds(1));
  EXPECT_THAT(Asked(), ElementsAre(2));
  EXPECT_EQ(Answer(2, absl::UnavailableError("no route")), 0);
  EXPECT_EQ(State(job), QUEUED);
  Beat(1);
  Beat(2);
  Tick(absl::Seconds(2));
  EXPECT_THAT(Asked(), ElementsAre(2));
  Answer(2, absl::OkStatus());
  EXPECT_EQ(State(job), PREPARING);
}

TEST_F(ClusterCoreAddressTest, AFullClusterFitsIntoOneAnswer) {
  for (uint32_t i = 0; i < kMembersMax; ++i) {
    Register request;
    Member* const member = request.mutable_member();
    member->mutable_task()->set_type(WORKER);
    member->mutable_task()->set_index((1 << 20) - i);
    const std::string port = absl::StrCat(":", 10'000 + i);
    member->set_address(std::string(253, 'a') + port);
    member->set_http_address(std::string(253, 'b') + port);
    member->set_hostname(std::string(255, 'c'));
    member->set_version("0.1." + std::string(60, '1'));
    member->set_pid(-1);
    member->set_incarnation(1 + i);
    core_.OnRegister(1 + i, request, now_, &actions_);
    ASSERT_EQ(core_.membership().size(), 1 + i) << "is too long";
    actions_.clear();
    if (i % 16 != 0) continue;
    core_.OnAddressAnswer(1 + i, absl::UnavailableError(std::string(5000, 'e')),
                          now_, &actions_);
  }
  now_ += absl::Milliseconds(123);
  const ClusterStatus cluster = core_.Cluster(now_);
  EXPECT_EQ(cluster.members_size(), static_cast<int>(kMembersMax));
  EXPECT_LE(cluster.ByteSizeLong(), kCommandBytesMax);
  for (const auto& entry : cluster.members()) {
    ASSERT_EQ(entry.job_id(), "(not confirmed)");
  }
}

TEST_F(ClusterCoreAddressTest, AnAnswerIsForOneSession) {
  Join(1, WORKER, 0, 11);
  core_.OnStreamClosed(1, now_, &actions_);
  Join(2, WORKER, 0, 11);
  EXPECT_THAT(Asked(), ElementsAre(2));
  Answer(1, absl::OkStatus());  // late
  EXPECT_THAT(JobOf(2), HasSubstr("not confirmed"));
}

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
  EXPECT_TRUE(core_.CheckUpload(job_, 11).ok());
  Done(1);  // of the old stream
  EXPECT_THAT(Commands(), IsEmpty());
  Done(3);
  EXPECT_THAT(Commands(), ElementsAre("3 stop", "2 stop"));
  Released(3, job_);
  Released(2, job_);
  EXPECT_EQ(State(job_), SUCCEEDED);
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
  EXPECT_THAT(Asked(), IsEmpty());
  EXPECT_EQ(core_.membership().Find(1), nullptr);
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

// So that what a worker keeps in mind, and what a job stores, have a bound.
TEST_F(ClusterCoreTest, ProfilesToComeAndProfilesOfAJobAreBounded) {
  Join(1, CHIEF, 0, 1);
  Join(2, WORKER, 0, 2);
  Join(3, PS, 0, 3);
  const std::string job = Submit(2, 1);
  for (const SessionId session : {1, 2, 3}) Prepared(session, job);
  const auto profile = [&](uint32_t rank) {
    ProfileRequest request;
    request.set_job_id(job);
    request.set_rank(rank);
    request.set_steps(1);
    return core_.Profile(request, &actions_);
  };
  const auto store = [&](const std::string& name) {
    Artifact artifact;
    artifact.set_name(name);
    EXPECT_TRUE(core_.AddArtifact(job, artifact, &actions_).ok());
  };
  std::vector<std::string> wishes;
  for (int i = 0; i < 8; ++i) wishes.push_back(*profile(0));
  EXPECT_EQ(wishes[7], "profiles/8-rank-0.pb");
  EXPECT_EQ(profile(0).status(),
            absl::ResourceExhaustedError(
                "worker 0 of job j-0001 has 8 profiles to record already; ask "
                "again when it has stored one of them"));
  EXPECT_EQ(*profile(1), "profiles/9-rank-1.pb");
  // The third comes, so the first two were not stored and will not be.
  store(wishes[2]);
  for (const char* name : {"1", "2", "10"}) {
    EXPECT_EQ(*profile(0), absl::StrCat("profiles/", name, "-rank-0.pb"));
  }
  EXPECT_EQ(profile(0).status().code(), absl::StatusCode::kResourceExhausted);
  store("profiles/9-rank-1.pb");
  for (int i = 11; i <= 100; ++i) store(*profile(1));
  EXPECT_EQ(profile(1).status(),
            absl::ResourceExhaustedError("job j-0001 has 100 profiles already, "
                                         "and no more are kept of one job"));
}

TEST_F(ClusterCoreTest, AProfileIsAskedOfTheWorkerOfThatRank) {
  const auto profile = [&](const std::string& job, uint32_t rank,
                           uint32_t steps) {
    ProfileRequest request;
    request.set_job_id(job);
    request.set_rank(rank);
    request.set_steps(steps);
    actions_.clear();
    return core_.Profile(request, &actions_);
  };
  const auto message = [&](const std::string& job, uint32_t rank,
                           uint32_t steps) {
    return std::string(profile(job, rank, steps).status().message());
  };
  Join(1, CHIEF, 0, 1);
  Join(2, WORKER, 0, 2);
  Join(3, PS, 0, 3);
  const std::string job = Submit(2, 1);
  EXPECT_EQ(message(job, 0, 20),
            "job j-0001 is PREPARING; only a running job can be profiled");
  for (const SessionId session : {1, 2, 3}) Prepared(session, job);
  ASSERT_EQ(State(job), RUNNING);

  const auto first = profile(job, 1, 20);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT(Commands(), ElementsAre("2 profile"));
  const auto& sent = std::get<SendCommand>(actions_[0]).message.profile();
  EXPECT_EQ(sent.steps(), 20u);
  EXPECT_EQ(sent.artifact(), *first);
  EXPECT_EQ(*first, "profiles/1-rank-1.pb");
  EXPECT_EQ(*profile(job, 0, 1000), "profiles/2-rank-0.pb");
  EXPECT_THAT(Commands(), ElementsAre("1 profile"));

  EXPECT_EQ(message(job, 2, 20),
            "job j-0001 has no worker 2; it has 2, and their ranks begin at 0");
  EXPECT_EQ(message(job, 0, 0), "steps: 0 is outside 1..1000");
  EXPECT_EQ(message(job, 0, 1001), "steps: 1001 is outside 1..1000");
  EXPECT_EQ(profile("j-0009", 0, 1).status().code(),
            absl::StatusCode::kNotFound);
  DaemonMessage done;
  done.mutable_done()->set_job_id(job);
  core_.OnMessage(2, done, now_, &actions_);
  EXPECT_EQ(message(job, 1, 20), "worker 1 of job j-0001 has no step to do");
  EXPECT_THAT(Commands(), IsEmpty());
  Cancel(job);
  EXPECT_EQ(message(job, 0, 20),
            "job j-0001 is CANCELLED; only a running job can be profiled");
}

}  // namespace
}  // namespace syncline::scheduler
