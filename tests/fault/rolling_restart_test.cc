// Goal: a cluster is restarted process by process under a running job: each is
// drained, stopped, started anew and given jobs again. In SYNC the job's model
// has the same bits as that of a job that nothing happened to. What an operator
// has said of a member survives the scheduler. Method: the real executables.

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kModelBytesMax = 64 << 20;
constexpr absl::Duration kPatience = absl::Minutes(6);

// Jobs of two workers and two ps on a cluster with one more of each.
class RollingRestartTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(cluster_.Start());
    folder_ = cluster_.dir().File("checkpoints");
    ASSERT_OK(MakeDirs(folder_));
  }

  // Checkpoints are made where they are asked for alone.
  JobSpec Mlp(const std::string& name, int epochs) const {
    JobSpec job = AdamDigitsJob(/*workers=*/2, epochs);
    job.set_name(name);
    job.mutable_resources()->set_ps(2);
    job.mutable_checkpoint()->set_every_seconds(1e6);
    job.mutable_checkpoint()->set_directory(folder_);
    return job;
  }
  std::string Submit(const JobSpec& job) {
    const auto id =
        cluster_.Submit(WriteJob(cluster_.dir(), job, MlpModel(784, 16, 10)));
    EXPECT_OK(id);
    return id.value_or("");
  }
  std::string ModelOf(const std::string& id) {
    const auto end = cluster_.WaitForEnd(id, kPatience);
    EXPECT_OK(end);
    if (!end.ok()) return "";
    EXPECT_EQ(end->state(), SUCCEEDED) << end->ShortDebugString();
    const auto file = cluster_.FetchModel(id);
    EXPECT_OK(file);
    return file.ok() ? ReadFile(*file, kModelBytesMax).value_or("") : "";
  }
  RunningProgram::Result Synctl(const std::vector<std::string>& arguments) {
    auto result = cluster_.Synctl(arguments);
    EXPECT_OK(result);
    return result.ok() ? *std::move(result) : RunningProgram::Result();
  }
  // "ps-1" -> "ps:1".
  static std::string TaskOf(std::string daemon) {
    daemon[daemon.find('-')] = ':';
    return daemon;
  }
  void Restart(const std::string& daemon) {
    cluster_.daemon(daemon).Signal(SIGTERM);
    ASSERT_TRUE(cluster_.daemon(daemon)
                    .WaitUntil(MonotonicNow() + absl::Minutes(1))
                    .has_value())
        << daemon;
    ASSERT_OK(cluster_.StartDaemon(daemon));
  }

  TestCluster cluster_{
      {.ps = 3, .workers = 3, .step_pause = absl::Milliseconds(5)}};
  std::string folder_;
};

TEST_F(RollingRestartTest, AllProcessesAreRestartedUnderARunningJob) {
  // Long enough for the restart of most of six processes on any machine.
  constexpr int kEpochs = 12;
  const std::string reference = ModelOf(Submit(Mlp("reference", kEpochs)));
  ASSERT_FALSE(reference.empty());
  const std::string id = Submit(Mlp("rolling", kEpochs));
  ASSERT_OK(cluster_.WaitForClock(id, 1, kPatience));
  for (const std::string daemon :
       {"ps-0", "chief-0", "worker-0", "ps-1", "worker-1", "ps-2"}) {
    SCOPED_TRACE(daemon);
    const auto drained =
        Synctl({"drain", TaskOf(daemon), "--reason", "new kernel"});
    ASSERT_EQ(drained.exit.code, 0) << drained.err;
    EXPECT_THAT(drained.out, HasSubstr("is drained: it can be stopped"));
    EXPECT_THAT(Synctl({"cluster"}).out,
                HasSubstr(absl::StrCat(TaskOf(daemon),
                                       " is drained (new kernel): it can be "
                                       "stopped")));
    Restart(daemon);
    ASSERT_EQ(Synctl({"uncordon", TaskOf(daemon)}).exit.code, 0);
    // The one that is restarted next may be needed.
    ASSERT_TRUE(Eventually(kPatience, [&] {
      const auto members = cluster_.Members();
      const auto job = cluster_.Get(id);
      return members.ok() && members->members_size() == 6 && job.ok() &&
             job->state() >= RUNNING;
    }));
  }
  EXPECT_TRUE(ModelOf(id) == reference);
  ASSERT_OK_AND_ASSIGN(const JobStatus job, cluster_.Get(id));
  EXPECT_GT(job.attempt(), 1u) << "the job has ended too early for the test";
  for (const JobTransition& transition : job.transitions()) {
    EXPECT_THAT(transition.reason(), Not(HasSubstr("was lost")));
  }
}

TEST_F(RollingRestartTest, AJobWaitsForMembersThatAreGivenBack) {
  const std::string reference = ModelOf(Submit(Mlp("reference", /*epochs=*/4)));
  const std::string id = Submit(Mlp("waiting", /*epochs=*/4));
  ASSERT_OK(cluster_.WaitForClock(id, 1, kPatience));
  ASSERT_EQ(Synctl({"cordon", "ps:2", "--reason", "spare"}).exit.code, 0);
  ASSERT_EQ(Synctl({"drain", "ps:0"}).exit.code, 0);
  ASSERT_TRUE(Eventually(kPatience, [&] {
    const auto job = cluster_.Get(id);
    return job.ok() && job->state() == QUEUED &&
           absl::StrContains(job->waiting_for(), "not counted: ");
  }));
  EXPECT_THAT(
      Synctl({"why", id}).out,
      AllOf(HasSubstr("ps 0 is drained"), HasSubstr("ps 2 is cordoned (spare)"),
            HasSubstr("planned move")));
  // The scheduler remembers it.
  Restart("scheduler");
  ASSERT_TRUE(Eventually(kPatience, [&] {
    const auto members = cluster_.Members();
    return members.ok() && members->members_size() == 6;
  }));
  EXPECT_THAT(Synctl({"cluster"}).out,
              AllOf(HasSubstr("ps:2 is cordoned (spare)"),
                    HasSubstr("ps:0 is drained: it can be stopped")));
  ASSERT_EQ(Synctl({"uncordon", "ps:2"}).exit.code, 0);
  EXPECT_TRUE(ModelOf(id) == reference);
}

}  // namespace
}  // namespace syncline
