// Goal: a GPU that fails in a step costs its job, with the operator's name, or
// an attempt of it where the job has `restart`; the worker executes itself anew
// and serves the next job, with nothing left of the process before; one whose
// GPU fails again without a step between ends; one whose GPU does not let it go
// is cut off, and executes itself anew all the same. Method: real processes,
// the worker's with an emulated GPU that fails at the n-th launch.

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/exit_codes.h"
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

constexpr absl::Duration kPatience = absl::Minutes(1);
constexpr uint64_t kModelBytesMax = 64 << 20;

// A ps and a worker whose GPU fails as `failure_` says when its process begins.
class GpuLossTest : public ::testing::Test {
 protected:
  explicit GpuLossTest(int workers = 1)
      : failure_(dir_.File("failure")),
        cluster_(
            {.ps = 1,
             .workers = workers,
             .worker_program = SYNCLINE_EMULATED_GPU_WORKER,
             .environment = {{"SYNCLINE_EMULATED_GPU_FAILURE", failure_}}}) {}

  void Start() {
    ASSERT_OK(cluster_.Start());
    ASSERT_OK_AND_ASSIGN(worker_, Worker());
    ASSERT_EQ(worker_.gpu().model(), "emulated GPU");
  }
  void FailAt(const std::string& moment) {
    ASSERT_OK(WriteFileAtomically(failure_, moment));
  }
  void FailAtLaunch(int64_t launch) { FailAt(absl::StrCat(launch)); }
  // Of processes that begin from now on.
  void FailNoMore() { ASSERT_OK(RemoveTree(failure_)); }

  absl::StatusOr<Member> Worker() {
    const auto members = cluster_.Members();
    if (!members.ok()) return members.status();
    for (const auto& entry : members->members()) {
      if (entry.member().has_gpu()) return entry.member();
    }
    return absl::NotFoundError(members->ShortDebugString());
  }
  // Waits until the worker has registered anew, after `before`, and is free.
  // Incarnations are told to no client; each has a port of its own.
  void AwaitNext(const Member& before) {
    absl::StatusOr<Member> now;
    ASSERT_TRUE(Eventually(kPatience, [&] {
      now = Worker();
      return now.ok() && now->address() != before.address();
    })) << cluster_.LogOf("chief-0");
    worker_ = *now;
    ASSERT_OK(cluster_.WaitForFreeMembers(2, kPatience));
  }

  // `clocks` of 8 samples, on the GPU.
  JobSpec Job(int64_t clocks) {
    JobSpec job = DigitsJob();
    job.mutable_data()->mutable_train()->mutable_digits()->set_count(
        static_cast<uint64_t>(clocks) * 8);
    job.mutable_data()->clear_test();
    job.mutable_training()->set_batch_size(8);
    job.mutable_training()->set_epochs(1);
    job.mutable_resources()->set_workers(1);
    job.mutable_resources()->set_ps(1);
    job.mutable_resources()->set_device(ResourcesSpec::CUDA);
    return job;
  }
  JobSpec RestartingJob(const std::string& checkpoints) {
    JobSpec job = Job(60);
    job.mutable_checkpoint()->set_every_clocks(10);
    job.mutable_checkpoint()->set_directory(dir_.File(checkpoints));
    job.mutable_restart()->set_max(3);
    job.mutable_restart()->set_backoff_seconds(0.1);
    return job;
  }
  absl::StatusOr<JobStatus> EndOf(const JobSpec& job) {
    const auto id =
        cluster_.Submit(WriteJob(cluster_.dir(), job, MlpModel(784, 4, 10)));
    if (!id.ok()) return id.status();
    return cluster_.WaitForEnd(*id, kPatience);
  }
  static std::string ReasonOf(const JobStatus& job) {
    return job.transitions().rbegin()->reason();
  }
  int OpenFiles() {
    std::error_code error;
    const std::filesystem::directory_iterator files(
        absl::StrCat("/proc/", worker_.pid(), "/fd"), error);
    return error ? -1
                 : static_cast<int>(std::distance(begin(files), end(files)));
  }

  const TempDir dir_;
  const std::string failure_;
  TestCluster cluster_;
  Member worker_;
};

TEST_F(GpuLossTest, TheJobFailsByTheOperatorAndTheNextFindsTheWorker) {
  ASSERT_NO_FATAL_FAILURE(FailAtLaunch(300));
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(FailNoMore());
  const Member before = worker_;
  const int files = OpenFiles();
  ASSERT_OK_AND_ASSIGN(const JobStatus failed, EndOf(Job(200)));
  EXPECT_EQ(failed.state(), FAILED);
  EXPECT_EQ(failed.exit_code(), kExitRetryable);
  EXPECT_THAT(ReasonOf(failed),
              AllOf(HasSubstr("chief 0 "), HasSubstr("the GPU has failed: "),
                    HasSubstr("the device was lost"),
                    ::testing::ContainsRegex(
                        "running: operator [0-9] of [0-9], (Gemm|Relu|MatMul|"
                        "Add)[^\"]* \"[^\"]*\", (forward|backward)")));
  ASSERT_NO_FATAL_FAILURE(AwaitNext(before));
  EXPECT_EQ(worker_.pid(), before.pid());
  ASSERT_OK_AND_ASSIGN(const JobStatus next, EndOf(Job(20)));
  EXPECT_EQ(next.state(), SUCCEEDED) << ReasonOf(next);
  // Nothing of the process before is left but its standard output; connections
  // come and go.
  EXPECT_LE(OpenFiles(), files + 4);
  ASSERT_OK(cluster_.WaitForFreeMembers(2, kPatience));
  cluster_.daemon("chief-0").Signal(SIGTERM);
  const auto exit =
      cluster_.daemon("chief-0").WaitUntil(absl::Now() + kPatience);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 0) << exit->ToString();
}

TEST_F(GpuLossTest, AJobWithRestartGoesOnWithTheSameBits) {
  const auto model_of = [&](const JobStatus& ended) {
    EXPECT_EQ(ended.state(), SUCCEEDED) << ReasonOf(ended);
    const auto file = cluster_.FetchModel(ended.job_id());
    EXPECT_OK(file);
    return file.ok() ? ReadFile(*file, kModelBytesMax).value_or("") : "";
  };
  ASSERT_NO_FATAL_FAILURE(FailAtLaunch(350));
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(FailNoMore());
  const Member before = worker_;
  ASSERT_OK_AND_ASSIGN(const JobStatus restarted,
                       EndOf(RestartingJob("restarted")));
  const std::string model = model_of(restarted);
  ASSERT_FALSE(model.empty());
  // The second may come to the worker while that still ends.
  EXPECT_GE(restarted.attempt(), 2u);
  EXPECT_THAT(restarted.ShortDebugString(),
              AllOf(HasSubstr("running: operator "),
                    HasSubstr("goes on from the checkpoint at clock ")));
  ASSERT_NO_FATAL_FAILURE(AwaitNext(before));
  ASSERT_OK_AND_ASSIGN(const JobStatus undisturbed,
                       EndOf(RestartingJob("undisturbed")));
  EXPECT_TRUE(model_of(undisturbed) == model) << "other bits";
}

TEST_F(GpuLossTest, AJobThatWasPreparedThenIsTriedAgain) {
  ASSERT_NO_FATAL_FAILURE(FailAt("prepare"));
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(FailNoMore());
  ASSERT_OK_AND_ASSIGN(const JobStatus job, EndOf(RestartingJob("saved")));
  EXPECT_EQ(job.state(), SUCCEEDED) << ReasonOf(job);
  // The second may come to the worker while that still ends.
  EXPECT_GE(job.attempt(), 2u);
  EXPECT_THAT(job.ShortDebugString(),
              HasSubstr("the device was lost before its first launch"));
}

// A chief, and a worker whose GPU fails.
class GpuLossOfOneTest : public GpuLossTest {
 protected:
  GpuLossOfOneTest() : GpuLossTest(/*workers=*/2) {}
};

TEST_F(GpuLossOfOneTest, TheOthersGoOnWhereTheJobAllowsIt) {
  ASSERT_OK(cluster_.Start());
  cluster_.daemon("worker-0").Signal(SIGKILL);
  ASSERT_TRUE(cluster_.daemon("worker-0").WaitUntil(absl::Now() + kPatience));
  ASSERT_NO_FATAL_FAILURE(FailAtLaunch(200));
  ASSERT_OK(cluster_.StartDaemon("worker-0"));
  ASSERT_OK(cluster_.WaitForFreeMembers(3, kPatience));
  ASSERT_NO_FATAL_FAILURE(FailNoMore());
  JobSpec job = RestartingJob("saved");
  job.mutable_resources()->set_workers(2);
  job.mutable_resources()->set_min_workers(1);
  ASSERT_OK_AND_ASSIGN(const JobStatus ended, EndOf(job));
  EXPECT_EQ(ended.state(), SUCCEEDED) << ReasonOf(ended);
  EXPECT_EQ(ended.attempt(), 1u);
  ASSERT_EQ(ended.lost_workers_size(), 1) << ended.ShortDebugString();
  EXPECT_THAT(ended.lost_workers(0).reason(),
              AllOf(HasSubstr("worker 0 "), HasSubstr("running: operator "),
                    HasSubstr("the job goes on with 1 worker")));
  ASSERT_OK(cluster_.WaitForFreeMembers(3, kPatience));
}

// The calls that give the GPU's memory back do not return.
TEST_F(GpuLossTest, AWorkerWhoseGpuHangsIsCutOffAndStartsAnew) {
  ASSERT_OK(cluster_.Start());
  cluster_.daemon("chief-0").Signal(SIGKILL);
  ASSERT_TRUE(cluster_.daemon("chief-0").WaitUntil(absl::Now() + kPatience));
  ASSERT_NO_FATAL_FAILURE(FailAt("hang 300"));
  ASSERT_OK(cluster_.StartDaemon("chief-0", {"--cut-off-seconds=2"}));
  ASSERT_OK(cluster_.WaitForFreeMembers(2, kPatience));
  ASSERT_NO_FATAL_FAILURE(FailNoMore());
  ASSERT_OK_AND_ASSIGN(worker_, Worker());
  const Member before = worker_;
  ASSERT_OK_AND_ASSIGN(const JobStatus failed, EndOf(Job(200)));
  EXPECT_EQ(failed.state(), FAILED);
  EXPECT_EQ(failed.exit_code(), kExitRetryable) << ReasonOf(failed);
  ASSERT_NO_FATAL_FAILURE(AwaitNext(before));
  EXPECT_EQ(worker_.pid(), before.pid());
  EXPECT_THAT(cluster_.LogOf("chief-0"),
              HasSubstr("the process did not end in time; it is cut off"));
  ASSERT_OK_AND_ASSIGN(const JobStatus next, EndOf(Job(20)));
  EXPECT_EQ(next.state(), SUCCEEDED) << ReasonOf(next);
}

// The state is on the GPUs of both: when one of them fails the chief saves what
// its own has.
TEST_F(GpuLossOfOneTest, RanksWithoutPsGoOnFromTheStateOfTheChiefsGpu) {
  const auto job_in = [&](const std::string& checkpoints) {
    JobSpec job = RestartingJob(checkpoints);
    job.mutable_data()->mutable_train()->mutable_digits()->set_count(960);
    job.mutable_checkpoint()->set_every_clocks(1000);
    job.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
    job.set_strategy(ALL_REDUCE);
    job.mutable_resources()->set_workers(2);
    job.mutable_resources()->set_ps(0);
    return job;
  };
  const auto model_of = [&](const JobStatus& ended) {
    const auto file = cluster_.FetchModel(ended.job_id());
    EXPECT_OK(file);
    return file.ok() ? ReadFile(*file, kModelBytesMax).value_or("") : "";
  };
  ASSERT_OK(cluster_.Start());
  cluster_.daemon("worker-0").Signal(SIGKILL);
  ASSERT_TRUE(cluster_.daemon("worker-0").WaitUntil(absl::Now() + kPatience));
  ASSERT_NO_FATAL_FAILURE(FailAtLaunch(450));
  ASSERT_OK(cluster_.StartDaemon("worker-0"));
  ASSERT_OK(cluster_.WaitForFreeMembers(3, kPatience));
  ASSERT_NO_FATAL_FAILURE(FailNoMore());
  ASSERT_OK_AND_ASSIGN(const JobStatus restarted, EndOf(job_in("restarted")));
  ASSERT_EQ(restarted.state(), SUCCEEDED) << ReasonOf(restarted);
  // The second may come to the worker while that still ends.
  EXPECT_GE(restarted.attempt(), 2u);
  // There is no other checkpoint than the one that was saved alone.
  EXPECT_THAT(restarted.ShortDebugString(),
              AllOf(HasSubstr("worker 0 "), HasSubstr("the GPU has failed: "),
                    HasSubstr("goes on from the checkpoint at clock ")));
  ASSERT_OK(cluster_.WaitForFreeMembers(3, kPatience));
  ASSERT_OK_AND_ASSIGN(const JobStatus undisturbed,
                       EndOf(job_in("undisturbed")));
  ASSERT_EQ(undisturbed.state(), SUCCEEDED) << ReasonOf(undisturbed);
  const std::string model = model_of(restarted);
  ASSERT_FALSE(model.empty());
  EXPECT_TRUE(model_of(undisturbed) == model) << "other bits";
}

TEST_F(GpuLossTest, AGpuThatMakesNoStepAnyMoreEndsTheWorker) {
  ASSERT_NO_FATAL_FAILURE(FailAtLaunch(3));
  ASSERT_NO_FATAL_FAILURE(Start());
  const Member before = worker_;
  ASSERT_OK_AND_ASSIGN(const JobStatus first, EndOf(Job(20)));
  EXPECT_THAT(ReasonOf(first), HasSubstr("the device was lost"));
  ASSERT_NO_FATAL_FAILURE(AwaitNext(before));
  ASSERT_OK_AND_ASSIGN(const JobStatus second, EndOf(Job(20)));
  EXPECT_THAT(ReasonOf(second), HasSubstr("the device was lost"));
  const auto exit =
      cluster_.daemon("chief-0").WaitUntil(absl::Now() + kPatience);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, kExitFailed) << exit->ToString();
  EXPECT_THAT(cluster_.LogOf("chief-0"),
              HasSubstr("the GPU has failed again, without a step between"));
}

}  // namespace
}  // namespace syncline
