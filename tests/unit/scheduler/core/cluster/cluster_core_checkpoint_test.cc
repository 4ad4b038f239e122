// Goal: a checkpoint is asked of the chief of a running job, and each request
// is answered once: by a checkpoint that is late enough, by the chief's reason,
// by the end of the run, or in time. Method: requests before, during and after
// a run.

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
using ::testing::IsEmpty;

class ClusterCoreCheckpointTest : public ClusterCoreTest {
 protected:
  void SetUp() override {
    Join(1, CHIEF, 0, 1);
    Join(2, PS, 0, 2);
  }
  std::string SubmitSaving() {
    JobSpec spec;
    spec.mutable_resources()->set_workers(1);
    spec.mutable_resources()->set_ps(1);
    spec.mutable_checkpoint()->set_every_clocks(1000);
    auto job = core_.Prepare(spec, {}, {}, core_.NextJobId(), now_);
    const std::string id = job->status.job_id();
    core_.Submit(*job, now_, &actions_);
    return id;
  }
  void Run(const std::string& job) {
    Prepared(1, job);
    Prepared(2, job);
    EXPECT_EQ(State(job), RUNNING);
  }
  absl::StatusOr<uint64_t> Ask(const std::string& job) {
    actions_.clear();
    return core_.TakeCheckpoint(job, now_, &actions_);
  }
  std::string Refusal(const std::string& job) {
    return std::string(Ask(job).status().message());
  }
  DaemonMessage Report(const std::string& job) const {
    DaemonMessage message;
    message.mutable_report()->set_job_id(job);
    return message;
  }
  void Clock(const std::string& job, int64_t clock) {
    DaemonMessage message = Report(job);
    message.mutable_report()->mutable_progress()->set_clock(clock);
    core_.OnMessage(1, message, now_, &actions_);
  }
  void Whole(const std::string& job, int64_t clock) {
    DaemonMessage message = Report(job);
    message.mutable_report()->mutable_checkpoint()->set_path("/c/1");
    message.mutable_report()->mutable_checkpoint()->set_clock(clock);
    actions_.clear();
    core_.OnMessage(1, message, now_, &actions_);
  }
  // "1 OK", "2 no checkpoint ...": the answers of the last event.
  std::vector<std::string> Answers() const {
    std::vector<std::string> answers;
    for (const ClusterAction& action : actions_) {
      const auto* answer = std::get_if<CheckpointAnswered>(&action);
      if (answer == nullptr) continue;
      answers.push_back(
          absl::StrCat(answer->request, " ",
                       answer->outcome.ok()
                           ? absl::StrCat("at ", answer->outcome->clock())
                           : std::string(answer->outcome.status().message())));
    }
    return answers;
  }
};

TEST_F(ClusterCoreCheckpointTest, OnlyARunningJobThatSavesIsAsked) {
  EXPECT_EQ(Ask("j-0009").status().code(), absl::StatusCode::kNotFound);
  const std::string job = SubmitSaving();
  EXPECT_EQ(Refusal(job),
            "job j-0001 is PREPARING; only a running job can write a "
            "checkpoint");
  Cancel(job);
  EXPECT_EQ(Refusal(job),
            "job j-0001 is CANCELLED; only a running job can write a "
            "checkpoint");
  Released(1, job);
  Released(2, job);
  const std::string without = Submit(1, 1);
  Run(without);
  EXPECT_EQ(Refusal(without),
            "job j-0002 has no `checkpoint`, so its ps write none");
}

TEST_F(ClusterCoreCheckpointTest, ALateEnoughCheckpointAnswers) {
  const std::string job = SubmitSaving();
  Run(job);
  Clock(job, 10);
  EXPECT_EQ(*Ask(job), 1u);
  EXPECT_THAT(Commands(), ElementsAre("1 write checkpoint"));
  // One that was begun long before.
  Whole(job, 9);
  EXPECT_THAT(Answers(), IsEmpty());
  Whole(job, 12);
  EXPECT_THAT(Answers(), ElementsAre("1 at 12"));
  Whole(job, 14);
  EXPECT_THAT(Answers(), IsEmpty());
}

TEST_F(ClusterCoreCheckpointTest, TheChiefsReasonAnswers) {
  const std::string job = SubmitSaving();
  Run(job);
  EXPECT_TRUE(Ask(job).ok());
  DaemonMessage message = Report(job);
  message.mutable_report()->set_checkpoint_error("at clock 3: disk full");
  actions_.clear();
  core_.OnMessage(1, message, now_, &actions_);
  EXPECT_THAT(Answers(),
              ElementsAre("1 job j-0001 has made no checkpoint: at clock 3: "
                          "disk full"));
}

TEST_F(ClusterCoreCheckpointTest, TheEndOfTheRunAnswers) {
  const std::string job = SubmitSaving();
  Run(job);
  EXPECT_TRUE(Ask(job).ok());
  Cancel(job);
  EXPECT_THAT(Answers(), ElementsAre(HasSubstr("job j-0001 is CANCELLED")));
}

TEST_F(ClusterCoreCheckpointTest, NoRequestWaitsForEver) {
  const std::string job = SubmitSaving();
  Run(job);
  EXPECT_TRUE(Ask(job).ok());
  for (int i = 0; i < 15 * 60 - 1; ++i) {
    Beat(1);
    Beat(2);
    Tick(absl::Seconds(1));
    ASSERT_THAT(Answers(), IsEmpty());
    Clock(job, i);
  }
  Beat(1);
  Beat(2);
  Tick(absl::Seconds(1));
  EXPECT_THAT(Answers(), ElementsAre(HasSubstr("within 15m")));
}

TEST_F(ClusterCoreCheckpointTest, RequestsAreBounded) {
  const std::string job = SubmitSaving();
  Run(job);
  for (size_t i = 0; i < CheckpointRequests::kMax; ++i) {
    ASSERT_TRUE(Ask(job).ok());
  }
  EXPECT_EQ(Ask(job).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace syncline::scheduler
