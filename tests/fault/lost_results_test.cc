// Goal: what a job has trained is not lost at its very end: neither to another
// worker's folder, nor to a full disk of the scheduler, nor to the death of a
// worker that is done. Method: the real executables; one --work-dir for two
// workers; the scheduler's state on a small tmpfs that the test fills; SIGKILL.

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(120);

std::string Write(const TestCluster& cluster, JobSpec job) {
  job.mutable_resources()->set_workers(2);
  return WriteJob(cluster.dir(), job, MlpModel(784, 32, 10));
}

TEST(LostResultsTest, WorkersMayShareAWorkDir) {
  const TempDir shared;
  TestCluster cluster({.ps = 1, .workers = 2, .work_dir = shared.path()});
  ASSERT_OK(cluster.Start());
  for (int run = 0; run < 3; ++run) {
    ASSERT_OK_AND_ASSIGN(const JobStatus job,
                         cluster.Train(Write(cluster, DigitsJob())));
    EXPECT_OK(cluster.FetchModel(job.job_id()));
  }
  // One is killed in the middle of a job; the next to start cleans up.
  ASSERT_OK_AND_ASSIGN(const std::string endless,
                       cluster.Submit(Write(cluster, EndlessJob())));
  ASSERT_OK(cluster.WaitForClock(endless, 1, kPatience));
  const auto folders = [&] {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(shared.path())) {
      const bool is_logs = entry.path().filename() == "syncline-logs";
      count += entry.is_directory() && !is_logs ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(folders(), 2);
  cluster.daemon("worker-0").Signal(SIGKILL);
  ASSERT_OK(cluster.WaitForEnd(endless, kPatience));
  ASSERT_OK(cluster.StartDaemon("worker-0"));
  ASSERT_OK(cluster.WaitForFreeMembers(3, kPatience));
  EXPECT_EQ(folders(), 2);
  EXPECT_OK(cluster.Train(Write(cluster, DigitsJob())));
}

// With --job, a host that starts again with its state finds its job: one that
// is over is not run again, one that a kill has broken off is.
TEST(LostResultsTest, ARestartedHostFindsItsJob) {
  const TempDir dir;
  const auto start = [&](JobSpec job) {
    return RunningProgram::Start(
        dir.path(),
        {BinaryDir() + "/syncline-worker",
         "--job=" + WriteJob(dir, job, MlpModel(784, 32, 10)),
         "--state-dir=" + dir.File("state"), "--listen=127.0.0.1:0",
         "--work-dir=" + dir.File("work")},
        {{"TF_CONFIG", std::nullopt}});
  };
  const auto jobs = [&] {
    const fs::directory_iterator folders(dir.File("state/jobs"));
    return std::distance(begin(folders), end(folders));
  };
  for (int run = 0; run < 2; ++run) {
    ASSERT_OK_AND_ASSIGN(auto host, start(DigitsJob()));
    ASSERT_OK_AND_ASSIGN(const auto end, host->Finish(kPatience));
    EXPECT_EQ(end.exit.code, 0) << end.err;
    EXPECT_EQ(jobs(), 1);
    EXPECT_EQ(end.err.find("has run before") != std::string::npos, run == 1);
    EXPECT_EQ(end.err.find("the scheduler is lost"), std::string::npos);
    // Its own two members are told at once; nothing else is waited for.
    EXPECT_EQ(end.err.find("some members have not come"), std::string::npos);
  }
  ASSERT_OK_AND_ASSIGN(auto killed, start(EndlessJob()));
  ASSERT_TRUE(Eventually(kPatience, [&] {
    return killed->err().find("state=RUNNING") != std::string::npos;
  })) << killed->err();
  killed->process().Signal(SIGKILL);
  ASSERT_OK(killed->Finish(kPatience));
  ASSERT_OK_AND_ASSIGN(auto again, start(EndlessJob()));
  EXPECT_TRUE(Eventually(kPatience, [&] {
    return again->err().find("state=RUNNING") != std::string::npos;
  })) << again->err();
  EXPECT_EQ(jobs(), 3);
}

TEST(LostResultsTest, AProcessThatIsAloneRefusesAJobForMore) {
  const TempDir dir;
  JobSpec job = DigitsJob();
  job.mutable_resources()->set_workers(2);
  ASSERT_OK_AND_ASSIGN(
      auto host,
      RunningProgram::Start(
          dir.path(),
          {BinaryDir() + "/syncline-worker",
           "--job=" + WriteJob(dir, job, MlpModel(784, 32, 10)),
           "--state-dir=" + dir.File("state"), "--listen=127.0.0.1:0"},
          {{"TF_CONFIG", std::nullopt}}));
  ASSERT_OK_AND_ASSIGN(const auto end, host->Finish(kPatience));
  EXPECT_EQ(end.exit.code, 1) << end.err;
  EXPECT_NE(end.err.find("the job takes 2 workers and 1 ps, but this process "
                         "is alone"),
            std::string::npos)
      << end.err;
}

// The scheduler's state is on a file system of its own.
class FullStateDiskTest : public testing::Test {
 protected:
  void SetUp() override {
    disk_ = cluster_.dir().File("state");
    ASSERT_OK(MakeDirs(disk_));
    if (mount("tmpfs", disk_.c_str(), "tmpfs", 0, "size=32m") != 0) {
      GTEST_SKIP() << "SKIPPED, A FULL DISK IS NOT TESTED: mount: "
                   << std::strerror(errno);
    }
    mounted_ = true;
    ASSERT_OK(cluster_.Start());
  }
  void TearDown() override {
    if (!mounted_) return;
    cluster_.daemon("scheduler").Signal(SIGKILL);
    EXPECT_TRUE(Eventually(absl::Seconds(30), [&] {
      return cluster_.daemon("scheduler").Poll().has_value();
    }));
    EXPECT_EQ(umount2(disk_.c_str(), MNT_DETACH), 0);
  }
  void Fill() {
    const int file = open((disk_ + "/ballast").c_str(),
                          O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    ASSERT_GE(file, 0);
    const std::string block(4096, 'x');
    while (write(file, block.data(), block.size()) > 0) {
    }
    EXPECT_EQ(errno, ENOSPC);
    close(file);
  }
  void MakeRoom() { ASSERT_OK(RemoveTree(disk_ + "/ballast")); }
  // Runs the job on a full disk until its results wait for room.
  std::string AwaitFullDisk() {
    JobSpec job = DigitsJob();
    job.mutable_training()->set_epochs(200);
    const auto id = cluster_.Submit(Write(cluster_, job));
    EXPECT_OK(id);
    EXPECT_OK(cluster_.WaitForClock(*id, 1, kPatience));
    Fill();
    std::string waiting_for;
    EXPECT_TRUE(Eventually(kPatience, [&] {
      const auto status = cluster_.Get(*id);
      if (!status.ok()) return false;
      waiting_for = status->waiting_for();
      return waiting_for.find("trained.onnx") != std::string::npos;
    }));
    waiting_for_ = waiting_for;
    return *id;
  }

  TestCluster cluster_{{.ps = 1, .workers = 2}};
  std::string disk_;
  std::string waiting_for_;
  bool mounted_ = false;
};

TEST_F(FullStateDiskTest, TheModelWaitsUntilThereIsRoom) {
  const std::string id = AwaitFullDisk();
  EXPECT_THAT(waiting_for_,
              AllOf(HasSubstr("chief 0"), HasSubstr("No space left"),
                    HasSubstr(cluster_.dir().File("chief-0.work"))));
  // A worker that is done may go.
  ASSERT_TRUE(Eventually(kPatience, [&] {
    const auto status = cluster_.Get(id);
    return status.ok() && status->done_ranks_size() == 1;
  }));
  cluster_.daemon("worker-0").Signal(SIGKILL);
  ASSERT_TRUE(Eventually(kPatience, [&] {
    const auto members = cluster_.Members();
    return members.ok() && members->members_size() == 2;
  }));
  MakeRoom();
  ASSERT_OK_AND_ASSIGN(const JobStatus job, cluster_.WaitForEnd(id, kPatience));
  EXPECT_EQ(job.state(), SUCCEEDED) << job.transitions().rbegin()->reason();
  ASSERT_OK_AND_ASSIGN(const std::string model, cluster_.FetchModel(id));
  EXPECT_OK(ReadWeights(model));
  // And nothing is left on the worker.
  for (const auto& entry :
       fs::directory_iterator(cluster_.dir().File("chief-0.work"))) {
    EXPECT_EQ(entry.path().filename().string().find("syncline-results"),
              std::string::npos);
  }
}

// The worker keeps its results until the scheduler is back, and stores them
// then: the job is taken up where it is.
TEST_F(FullStateDiskTest, ASchedulerThatIsKilledThenGetsTheModelLater) {
  const std::string id = AwaitFullDisk();
  cluster_.daemon("scheduler").Signal(SIGKILL);
  ASSERT_TRUE(cluster_.daemon("scheduler")
                  .WaitUntil(absl::Now() + absl::Seconds(10))
                  .has_value());
  MakeRoom();
  ASSERT_OK(cluster_.StartDaemon("scheduler"));
  ASSERT_OK_AND_ASSIGN(const JobStatus job, cluster_.WaitForEnd(id, kPatience));
  EXPECT_EQ(job.state(), SUCCEEDED) << job.transitions().rbegin()->reason();
  EXPECT_EQ(job.attempt(), 1u);
  ASSERT_OK(cluster_.WaitForFreeMembers(3, kPatience));
  ASSERT_OK_AND_ASSIGN(const std::string model, cluster_.FetchModel(id));
  EXPECT_OK(ReadWeights(model));
}

}  // namespace
}  // namespace syncline
