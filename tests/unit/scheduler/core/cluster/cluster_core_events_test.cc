// Goal: what happens to a job, by whom ever, is among its events, and of each
// the disk is told once. Method: events of a cluster, and what the core answers
// after each.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/core/cluster/cluster_core.h"
#include "tests/unit/scheduler/core/cluster/cluster_core_fixture.h"

namespace syncline::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ClusterCoreEventsTest : public ClusterCoreTest {
 protected:
  // Those of the last event.
  std::vector<std::string> New() {
    core_.RecordEvents(now_, &actions_);
    std::vector<std::string> texts;
    for (const ClusterAction& action : actions_) {
      if (const auto* append = std::get_if<AppendEvent>(&action)) {
        texts.push_back(absl::StrCat(append->event.number, " ",
                                     append->event.event.kind(), ": ",
                                     append->event.event.text()));
      }
    }
    actions_.clear();
    return texts;
  }
};

TEST_F(ClusterCoreEventsTest, ALossIsNamedBeforeWhatFollowsFromIt) {
  Join(1, CHIEF, 0, 1);
  Join(2, PS, 0, 2);
  const std::string job = Submit(1, 1);
  EXPECT_THAT(New(),
              ElementsAre("1 state: queued",
                          HasSubstr("2 attempt: attempt 1 is prepared")));
  Prepared(1, job);
  Prepared(2, job);
  EXPECT_THAT(New(), ElementsAre(HasSubstr("3 state: running")));
  core_.OnStreamClosed(2, now_, &actions_);
  EXPECT_THAT(New(),
              ElementsAre("4 member: ps 0 at h:1 (incarnation 0x9758) was "
                          "lost: stream closed",
                          HasSubstr("5 state: failed: ps 0 at h:1")));
  const auto all = core_.Events(job, 4);
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->events.size(), 2u);
  EXPECT_EQ(all->left_out, 0u);
  EXPECT_FALSE(core_.Events("j-0009", 0).ok());
}

// Also: such a job is refused where there is no evaluator.
TEST_F(ClusterCoreEventsTest, CheckpointsThatAreNotEvaluatedAreNamed) {
  Join(1, CHIEF, 0, 1);
  Join(2, PS, 0, 2);
  JobSpec spec;
  spec.mutable_data()->mutable_test();
  spec.mutable_resources()->set_workers(1);
  spec.mutable_resources()->set_ps(1);
  spec.mutable_evaluate()->set_checkpoints(true);
  const auto refused = core_.Prepare(spec, {}, {}, core_.NextJobId(), now_);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("start one with syncline-worker --task=evaluator"));

  Join(3, EVALUATOR, 0, 3);
  const auto stored = core_.Prepare(spec, {}, {}, core_.NextJobId(), now_);
  ASSERT_TRUE(stored.ok()) << stored.status();
  const std::string job = stored->status.job_id();
  core_.Submit(*stored, now_, &actions_);
  for (const SessionId session : {1, 2, 3}) Prepared(session, job);
  New();
  const auto report = [&](SessionId session, auto fill) {
    DaemonMessage message;
    message.mutable_report()->set_job_id(job);
    fill(message.mutable_report());
    core_.OnMessage(session, message, now_, &actions_);
  };
  std::vector<int64_t> told;
  for (const int64_t clock : {10, 20, 30}) {
    report(1, [&](WorkerReport* of) {
      of->mutable_checkpoint()->set_clock(clock);
      of->mutable_checkpoint()->set_path(absl::StrCat("/c/", clock));
    });
    for (const ClusterAction& action : actions_) {
      const auto* const send = std::get_if<SendCommand>(&action);
      if (send == nullptr || !send->message.has_evaluate()) continue;
      EXPECT_EQ(send->session, 3u);
      told.push_back(send->message.evaluate().checkpoint().clock());
    }
    if (clock < 30) New();
  }
  EXPECT_THAT(told, ElementsAre(10));
  EXPECT_THAT(New(),
              ElementsAre(HasSubstr("evaluation: the checkpoint at clock "
                                    "20 is not evaluated"),
                          HasSubstr("checkpoint: at clock 30")));
  report(3, [&](WorkerReport* of) {
    of->set_failed_checkpoint("/c/10");
    of->set_evaluation_error("it is gone");
  });
  EXPECT_THAT(New(), ElementsAre(HasSubstr("warning: the checkpoint in /c/10 "
                                           "could not be evaluated")));
  EXPECT_EQ(State(job), RUNNING);
}

TEST_F(ClusterCoreEventsTest, AnotherSchedulerIsAnEvent) {
  StoredJob stored;
  stored.status.set_job_id("j-0001");
  stored.status.set_state(QUEUED);
  stored.status.mutable_spec()->mutable_resources()->set_workers(1);
  stored.status.add_transitions()->set_state(QUEUED);
  stored.events.push_back({.number = 1});
  stored.events[0].event.set_kind("state");
  ClusterCore next(CoreOptions());
  ClusterActions actions;
  next.Restore({stored}, {}, now_, &actions);
  next.RecordEvents(now_, &actions);
  const auto all = next.Events("j-0001", 0);
  ASSERT_TRUE(all.ok());
  ASSERT_EQ(all->events.size(), 2u);
  EXPECT_EQ(all->events[1].event.text(),
            "a scheduler was started with this job");
}

TEST_F(ClusterCoreEventsTest, EventsGoWithTheirJob) {
  const std::string job = Submit(1, 1);
  Cancel(job);
  Submit(1, 1);
  New();
  Tick(absl::Hours(2));
  New();
  EXPECT_FALSE(core_.Events(job, 0).ok());
}

}  // namespace
}  // namespace syncline::scheduler
