// Goal: a job for which a worker has not the memory ends with synctl's exit
// code 1 and the setting that would fit, and the worker takes the next job.
// Method: a real cluster whose worker's address space is limited while it runs.

#include <sys/resource.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/process_memory.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(JobMemoryTest, AJobThatDoesNotFitSaysWhatWouldAndTheWorkerGoesOn) {
  TestCluster cluster({.ps = 1, .workers = 1});
  ASSERT_OK(cluster.Start());
  const pid_t worker = cluster.daemon("chief-0").pid();
  const rlim_t limit =
      ProcessMemoryBytes(worker, "VmSize") + (rlim_t{400} << 20);
  const rlimit limits = {limit, limit};
  ASSERT_EQ(prlimit(worker, RLIMIT_AS, &limits, nullptr), 0);

  // Half a GiB of activations.
  JobSpec job = DigitsJob();
  job.set_name("large");
  job.mutable_training()->set_batch_size(16384);
  ASSERT_OK_AND_ASSIGN(
      const auto refused,
      cluster.Synctl({"submit",
                      WriteJob(cluster.dir(), job, MlpModel(784, 4096, 10)),
                      "--watch"}));
  EXPECT_EQ(refused.exit.code, 1) << refused.out << refused.err;
  EXPECT_THAT(refused.out + refused.err,
              AllOf(HasSubstr("need "), HasSubstr("training.micro_batches: "),
                    HasSubstr(" would fit")));
  EXPECT_OK(cluster.Train(
      WriteJob(cluster.dir(), DigitsJob(), MlpModel(784, 32, 10))));
}

}  // namespace
}  // namespace syncline
