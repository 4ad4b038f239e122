// Goal: what an operator asks of running jobs happens, and what cannot happen
// is refused with the reason. Method: the real executables, jobs that are long
// enough to be asked.

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>

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

using testing::AllOf;
using testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Minutes(4);

class OperationsTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(cluster_.Start());
    folder_ = cluster_.dir().File("checkpoints");
    ASSERT_OK(MakeDirs(folder_));
  }

  // A job that does not end by itself while it is asked.
  JobSpec Long(const std::string& name) const {
    JobSpec job = DigitsJob();
    job.set_name(name);
    job.mutable_data()->mutable_train()->mutable_digits()->set_count(16'000);
    job.mutable_training()->set_batch_size(8);
    job.mutable_training()->set_epochs(1000);
    job.mutable_training()->set_threads(1);
    job.mutable_resources()->set_workers(2);
    job.mutable_resources()->set_ps(2);
    return job;
  }
  JobSpec Saving(const std::string& name) const {
    JobSpec job = Long(name);
    job.mutable_checkpoint()->set_every_seconds(1e6);
    job.mutable_checkpoint()->set_directory(folder_);
    return job;
  }
  std::string Submit(const JobSpec& job) {
    const auto id =
        cluster_.Submit(WriteJob(cluster_.dir(), job, MlpModel(784, 16, 10)));
    EXPECT_OK(id);
    if (!id.ok()) return "";
    EXPECT_OK(cluster_.WaitForClock(*id, 10, kPatience));
    return *id;
  }
  RunningProgram::Result Synctl(const std::vector<std::string>& arguments) {
    auto result = cluster_.Synctl(arguments);
    EXPECT_OK(result);
    return result.ok() ? *std::move(result) : RunningProgram::Result();
  }

  TestCluster cluster_{{.ps = 2, .workers = 2}};
  std::string folder_;
};

TEST_F(OperationsTest, ACheckpointIsWrittenWhenItIsAskedFor) {
  const std::string id = Submit(Saving("saving"));
  ASSERT_OK_AND_ASSIGN(const JobStatus before, cluster_.Get(id));
  EXPECT_EQ(before.checkpoints_size(), 0);
  const auto first = Synctl({"checkpoint", id});
  EXPECT_EQ(first.exit.code, 0) << first.err;
  ASSERT_OK_AND_ASSIGN(const JobStatus after, cluster_.Get(id));
  ASSERT_EQ(after.checkpoints_size(), 1);
  EXPECT_GE(after.checkpoints(0).clock(), 10);
  EXPECT_THAT(first.out, HasSubstr(after.checkpoints(0).path()));
  EXPECT_TRUE(std::filesystem::exists(
      absl::StrCat(after.checkpoints(0).path(), "/manifest")));
  // Another one is later.
  EXPECT_EQ(Synctl({"checkpoint", id}).exit.code, 0);
  ASSERT_OK_AND_ASSIGN(const JobStatus again, cluster_.Get(id));
  EXPECT_GT(again.checkpoints().rbegin()->clock(),
            after.checkpoints(0).clock());
  // Its folder is taken away.
  std::filesystem::rename(folder_, folder_ + "-away");
  ASSERT_OK(WriteFileAtomically(folder_, "in the way"));
  const auto failed = Synctl({"checkpoint", id});
  EXPECT_EQ(failed.exit.code, 1);
  EXPECT_THAT(failed.err, HasSubstr("has made no checkpoint: at clock "));
  ASSERT_OK(cluster_.Synctl({"cancel", id}));
  const auto late = Synctl({"checkpoint", id});
  EXPECT_EQ(late.exit.code, 1);
  EXPECT_THAT(late.err, HasSubstr("is CANCELLED; only a running job"));
  EXPECT_THAT(Synctl({"checkpoint", "j-0009"}).err, HasSubstr("j-0009"));
}

TEST_F(OperationsTest, EventsTellWhatHasHappened) {
  const std::string id = Submit(Saving("told"));
  ASSERT_OK_AND_ASSIGN(const auto follower,
                       cluster_.StartSynctl({"events", id, "-f"}));
  EXPECT_EQ(Synctl({"checkpoint", id}).exit.code, 0);
  EXPECT_EQ(Synctl({"cordon", "ps:0", "--reason", "old disk"}).exit.code, 0);
  EXPECT_THAT(Synctl({"why", id}).out,
              AllOf(HasSubstr("checkpoint: at clock "),
                    HasSubstr("drain: ps 0 is cordoned (old disk)")));
  EXPECT_EQ(Synctl({"cancel", id, "--reason", "enough"}).exit.code, 0);
  const auto told = AllOf(
      HasSubstr("state       queued"), HasSubstr("attempt 1 is prepared on 2"),
      HasSubstr("state       running"), HasSubstr("checkpoint  at clock "),
      HasSubstr("ps 0 is cordoned (old disk)"),
      HasSubstr("state       cancelled: enough"));
  ASSERT_OK_AND_ASSIGN(const auto followed, follower->Finish(kPatience));
  EXPECT_EQ(followed.exit.code, 0) << followed.err;
  EXPECT_THAT(followed.out, told);
  EXPECT_THAT(Synctl({"events", id}).out, told);
  EXPECT_THAT(Synctl({"events", "j-0009"}).err, HasSubstr("j-0009"));
  // Another scheduler has them, too.
  cluster_.daemon("scheduler").Signal(SIGKILL);
  ASSERT_OK(cluster_.StartDaemon("scheduler"));
  EXPECT_TRUE(Eventually(kPatience, [&] { return cluster_.Members().ok(); }));
  EXPECT_THAT(Synctl({"events", id}).out, told);
}

TEST_F(OperationsTest, AJobThatSavesNothingWritesNoCheckpoint) {
  const std::string id = Submit(Long("unsaved"));
  const auto refused = Synctl({"checkpoint", id});
  EXPECT_EQ(refused.exit.code, 1);
  EXPECT_THAT(refused.err, AllOf(HasSubstr(id), HasSubstr("no `checkpoint`")));
}

}  // namespace
}  // namespace syncline
