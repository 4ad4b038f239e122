// Goal: a network that is broken between one worker and one ps, while both
// still reach the scheduler, fails the job with the names of the two once it
// has lasted for limits.step_timeout_seconds. Method: the real executables; a
// relay between the worker and the ps that stops passing anything on.

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fakes/relay.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(BrokenPairTest, ThePairIsNamed) {
  const std::string listen = absl::StrCat("127.0.0.1:", UnusedPort());
  Relay relay(listen);
  TestCluster cluster(
      {.ps = 1,
       .workers = 1,
       .ps_flags = {absl::StrCat("--listen=", listen),
                    absl::StrCat("--advertise=", relay.address())}});
  ASSERT_OK(cluster.Start());
  JobSpec job = EndlessJob();
  job.mutable_resources()->set_workers(1);
  job.mutable_limits()->set_step_timeout_seconds(30);
  ASSERT_OK_AND_ASSIGN(
      const std::string job_id,
      cluster.Submit(WriteJob(cluster.dir(), job, MlpModel(784, 32, 10))));
  ASSERT_OK(cluster.WaitForClock(job_id, 3, absl::Seconds(60)));
  relay.Stall(true);
  ASSERT_OK_AND_ASSIGN(const JobStatus end,
                       cluster.WaitForEnd(job_id, absl::Seconds(120)));
  EXPECT_EQ(end.state(), FAILED);
  EXPECT_EQ(end.exit_code(), 138);
  EXPECT_THAT(
      end.transitions().rbegin()->reason(),
      AllOf(HasSubstr("chief 0 at "), HasSubstr(" cannot reach ps 0 at "),
            HasSubstr(relay.address())));
}

}  // namespace
}  // namespace syncline
