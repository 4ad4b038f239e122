// Goal: starting something twice harms nothing and is told plainly: a second
// daemon with the same task, a port that is in use. Method: the real
// executables; after each, a job.

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using testing::HasSubstr;

class DoubleStartTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    cluster_ = std::make_unique<TestCluster>(
        TestCluster::Options{.ps = 1, .workers = 2});
    ASSERT_OK(cluster_->Start());
  }
  static void TearDownTestSuite() { cluster_.reset(); }

  void TearDown() override {
    EXPECT_OK(cluster_->WaitForFreeMembers(3, absl::Seconds(30)));
    JobSpec job = DigitsJob();
    job.mutable_resources()->set_workers(2);
    EXPECT_OK(
        cluster_->Train(WriteJob(cluster_->dir(), job, MlpModel(784, 32, 10))));
  }

  static absl::StatusOr<RunningProgram::Result> RunDaemon(
      const std::string& binary, const std::vector<std::string>& flags) {
    std::vector<std::string> argv = {absl::StrCat(BinaryDir(), "/", binary)};
    argv.insert(argv.end(), flags.begin(), flags.end());
    auto daemon = RunningProgram::Start(cluster_->dir().path(), argv,
                                        {{"TF_CONFIG", std::nullopt}});
    if (!daemon.ok()) return daemon.status();
    return (*daemon)->Finish(absl::Seconds(60));
  }

  static std::string SchedulerFlag() {
    return absl::StrCat("--scheduler=", cluster_->scheduler_address());
  }

  static std::unique_ptr<TestCluster> cluster_;
};

std::unique_ptr<TestCluster> DoubleStartTest::cluster_;

TEST_F(DoubleStartTest, ASecondDaemonWithTheSameTask) {
  ASSERT_OK_AND_ASSIGN(const ClusterStatus members, cluster_->Members());
  std::string holder;
  for (const auto& entry : members.members()) {
    if (entry.member().task().type() == PS) holder = entry.member().address();
  }
  ASSERT_OK_AND_ASSIGN(
      const auto second,
      RunDaemon("syncline-ps",
                {"--listen=127.0.0.1:0", SchedulerFlag(), "--task=ps:0"}));
  EXPECT_EQ(second.exit.code, 1);
  EXPECT_THAT(second.err, HasSubstr("ps 0"));
  EXPECT_THAT(second.err, HasSubstr(holder));
}

TEST_F(DoubleStartTest, APortThatIsInUse) {
  const std::string taken = cluster_->scheduler_address();
  ASSERT_OK_AND_ASSIGN(
      const auto ps,
      RunDaemon("syncline-ps",
                {"--listen=" + taken, SchedulerFlag(), "--task=ps:1"}));
  EXPECT_EQ(ps.exit.code, 1);
  EXPECT_THAT(ps.err, HasSubstr(taken));
  ASSERT_OK_AND_ASSIGN(
      const auto scheduler,
      RunDaemon("syncline-scheduler",
                {"--listen=" + taken,
                 "--state-dir=" + cluster_->dir().File("other-state")}));
  EXPECT_EQ(scheduler.exit.code, 1);
  EXPECT_THAT(scheduler.err, HasSubstr(taken));
}

TEST_F(DoubleStartTest, ADaemonThatWaitsForASchedulerCanBeStopped) {
  ASSERT_OK_AND_ASSIGN(
      auto daemon,
      RunningProgram::Start(
          cluster_->dir().path(),
          {BinaryDir() + "/syncline-ps", "--listen=127.0.0.1:0",
           absl::StrCat("--scheduler=127.0.0.1:", UnusedPort()), "--task=ps:7",
           "--port-file=" + cluster_->dir().File("waiting")},
          {{"TF_CONFIG", std::nullopt}}));
  ASSERT_TRUE(Eventually(absl::Seconds(30), [&] {
    return std::filesystem::exists(cluster_->dir().File("waiting"));
  }));
  daemon->process().Signal(SIGTERM);
  ASSERT_OK_AND_ASSIGN(const auto result, daemon->Finish(absl::Seconds(20)));
  EXPECT_EQ(result.exit.signal, 0) << "it must end by itself";
}

}  // namespace
}  // namespace syncline
