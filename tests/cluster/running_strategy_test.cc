// Goal: the strategy of a running job changes as a user asks with synctl, and
// the job ends with the bits of one that keeps it; a process that is lost after
// a change costs the steps since the last checkpoint, and the job goes on by
// the strategy that it had there. What cannot be has one clear message. Method:
// the real executables.

#include <csignal>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kModelBytesMax = 64 << 20;
constexpr absl::Duration kPatience = absl::Minutes(4);

class RunningStrategyTest : public ::testing::Test {
 protected:
  RunningStrategyTest()
      : cluster_({.ps = 2, .workers = 2, .step_pause = absl::Milliseconds(6)}) {
  }
  void SetUp() override { ASSERT_OK(cluster_.Start()); }

  // 300 clocks an epoch.
  JobSpec Job(const std::string& name, uint32_t epochs) {
    JobSpec job = AdamDigitsJob(/*workers=*/2, epochs);
    job.set_name(name);
    job.mutable_optimizer()->set_clip_norm(1);
    job.set_non_finite(SKIP_STEP);
    job.mutable_resources()->set_ps(2);
    return job;
  }
  std::string Submit(const JobSpec& job) {
    const auto id =
        cluster_.Submit(WriteJob(cluster_.dir(), job, MlpModel(784, 32, 10)));
    EXPECT_OK(id);
    return id.value_or("");
  }
  // All that synctl printed.
  std::string Regime(const std::string& id, std::vector<std::string> flags,
                     int expected_code = 0) {
    std::vector<std::string> arguments = {"regime", id};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const auto result = cluster_.Synctl(arguments);
    EXPECT_OK(result);
    if (!result.ok()) return "";
    EXPECT_EQ(result->exit.code, expected_code) << result->err;
    return absl::StrCat(result->out, result->err);
  }
  // Of a job that has succeeded.
  std::string ModelOf(const std::string& id) {
    const auto end = cluster_.WaitForEnd(id, kPatience);
    EXPECT_OK(end);
    if (!end.ok()) return "";
    EXPECT_EQ(end->state(), SUCCEEDED) << end->ShortDebugString();
    const auto file = cluster_.FetchModel(id);
    EXPECT_OK(file);
    return file.ok() ? ReadFile(*file, kModelBytesMax).value_or("") : "";
  }

  TestCluster cluster_;
};

TEST_F(RunningStrategyTest, EndsWithTheBitsOfAJobThatKeepsItsPs) {
  const std::string kept = ModelOf(Submit(Job("kept", 5)));
  ASSERT_FALSE(kept.empty());
  const std::string id = Submit(Job("changed", 5));
  ASSERT_OK(cluster_.WaitForClock(id, 50, kPatience));
  EXPECT_THAT(Regime(id, {"--strategy", "all-reduce", "--reason", "slow ps"}),
              HasSubstr("ALL_REDUCE SYNC"));
  EXPECT_THAT(Regime(id, {"--strategy", "all-reduce"}, 1),
              HasSubstr("trains so already"));
  EXPECT_THAT(Regime(id, {"--mode", "async"}, 1),
              HasSubstr("change to PARAMETER_SERVER first"));
  EXPECT_THAT(Regime(id, {"--strategy", "sharded", "--sharding-stage", "3"}, 1),
              HasSubstr("the steps of this job are planned for 1"));
  EXPECT_THAT(Regime(id, {"--strategy", "sharded"}), HasSubstr("SHARDED SYNC"));
  EXPECT_THAT(Regime(id, {"--strategy", "parameter-server"}),
              HasSubstr("SYNC"));
  EXPECT_THAT(Regime(id, {"--strategy", "hybrid"}, 1),
              HasSubstr("HYBRID cannot begin or end"));
  EXPECT_THAT(Regime(id, {"--strategy", "all-reduce"}),
              HasSubstr("ALL_REDUCE"));
  EXPECT_TRUE(ModelOf(id) == kept) << "other bits";
  ASSERT_OK_AND_ASSIGN(const JobStatus done, cluster_.Get(id));
  EXPECT_EQ(done.attempt(), 1u);
  ASSERT_EQ(done.regimes_size(), 5);
  for (int i = 1; i < done.regimes_size(); ++i) {
    EXPECT_EQ(done.regimes(i).error(), "");
    EXPECT_GT(done.regimes(i).pause_seconds(), 0);
  }
  ASSERT_OK_AND_ASSIGN(const auto text, cluster_.Synctl({"get", id}));
  EXPECT_THAT(text.out, AllOf(HasSubstr("ALL_REDUCE"), HasSubstr("slow ps")));
}

TEST_F(RunningStrategyTest, ALostProcessCostsTheStepsSinceTheCheckpoint) {
  JobSpec job = Job("kept", 5);
  const std::string kept = ModelOf(Submit(job));
  job.set_name("lost");
  job.mutable_checkpoint()->set_every_clocks(100);
  job.mutable_checkpoint()->set_directory(cluster_.dir().File("checkpoints"));
  job.mutable_restart()->set_max(3);
  job.mutable_restart()->set_backoff_seconds(0.1);
  const std::string id = Submit(job);
  ASSERT_OK(cluster_.WaitForClock(id, 50, kPatience));
  Regime(id, {"--strategy", "all-reduce"});
  ASSERT_OK_AND_ASSIGN(const JobStatus changed, cluster_.Get(id));
  const int64_t at = changed.regimes().rbegin()->regime().first_clock();
  // One that the ranks have written.
  ASSERT_TRUE(Eventually(kPatience, [&] {
    const auto status = cluster_.Get(id);
    return status.ok() && status->checkpoints_size() > 0 &&
           status->checkpoints().rbegin()->clock() > at;
  }));
  cluster_.daemon("worker-0").Signal(SIGKILL);
  ASSERT_OK(cluster_.StartDaemon("worker-0"));
  EXPECT_TRUE(ModelOf(id) == kept) << "other bits";
  ASSERT_OK_AND_ASSIGN(const JobStatus done, cluster_.Get(id));
  EXPECT_EQ(done.attempt(), 2u);
  EXPECT_EQ(done.regimes().rbegin()->regime().strategy(), ALL_REDUCE);
}

}  // namespace
}  // namespace syncline
