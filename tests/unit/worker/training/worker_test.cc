// Goal: a stop is answered by a worker that has nothing left of the job, and
// the answer is no success. Method: commands to a worker whose scheduler has no
// files.

#include "worker/training/worker.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fakes/fake_artifacts.h"
#include "tests/testing/fakes/wait_log.h"
#include "tests/testing/temp_dir.h"

namespace syncline::worker {
namespace {

class WorkerTest : public ::testing::Test {
 protected:
  WorkerTest() {
    Worker::Options options;
    options.work_dir = dir_.File("work");
    options.incarnation = 7;
    options.artifacts = std::make_shared<FakeArtifacts>();
    auto worker = Worker::Create(
        options, [this](DaemonMessage message) { sent_.Add(message); });
    EXPECT_TRUE(worker.ok()) << worker.status();
    worker_ = *std::move(worker);
  }
  void Prepare(const std::string& job_id) {
    SchedulerMessage message;
    JobAssignment* assignment = message.mutable_prepare()->mutable_assignment();
    assignment->set_job_id(job_id);
    assignment->add_workers()->mutable_member()->set_incarnation(7);
    worker_->OnCommand(message);
  }
  void Stop(const std::string& job_id) {
    SchedulerMessage message;
    message.mutable_stop()->set_job_id(job_id);
    message.mutable_stop()->set_reason("no scheduler");
    worker_->OnCommand(message);
  }
  static void ExpectAborted(const DaemonMessage& message,
                            const std::string& job_id) {
    ASSERT_TRUE(message.has_done());
    EXPECT_EQ(message.done().job_id(), job_id);
    EXPECT_TRUE(message.done().released());
    EXPECT_EQ(message.done().code(),
              static_cast<int>(absl::StatusCode::kAborted));
  }

  TempDir dir_;
  WaitLog<DaemonMessage> sent_;
  std::unique_ptr<Worker> worker_;
};

// A scheduler that was out of reach hears of both at once.
TEST_F(WorkerTest, AStopOfAJobThatHasFailedIsNoSuccess) {
  Prepare("j-0001");
  ASSERT_EQ(sent_.Await(1).size(), 1u);
  EXPECT_EQ(sent_.Await(1)[0].prepared().problems_size(), 1);
  Stop("j-0001");
  const std::vector<DaemonMessage> messages = sent_.Await(2);
  ASSERT_EQ(messages.size(), 2u);
  ExpectAborted(messages[1], "j-0001");
}

TEST_F(WorkerTest, AStopOfAJobThatNobodyKnowsIsAnswered) {
  Stop("j-0009");
  const std::vector<DaemonMessage> messages = sent_.Await(1);
  ASSERT_EQ(messages.size(), 1u);
  ExpectAborted(messages[0], "j-0009");
}

}  // namespace
}  // namespace syncline::worker
