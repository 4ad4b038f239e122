// Goal: the queue starts the right job, says what each job waits for, and lets
// small jobs overtake only those that the cluster cannot hold. Method: jobs of
// several sizes, members that come and go, invented times.

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/core/cluster/cluster_core.h"
#include "tests/unit/scheduler/core/cluster/cluster_core_fixture.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
  // `both` has kept its place in the queue.
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
  // The evaluator is stopped and freed like the others.
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

}  // namespace
}  // namespace syncline::scheduler
