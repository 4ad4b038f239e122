// Goal: a disk of checkpoints that hangs costs the checkpoint alone: the job
// ends, its processes stay in the cluster and are free for the next job, though
// the disk still hangs. Method: the real executables; a fault point stands
// still for longer than the test lasts, in a ps, or in a worker or the chief of
// a job without ps.

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/fault/fault_fixture.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

class HangingDiskTest : public FaultFixture {
 protected:
  JobSpec Undisturbed() override {
    return SavingJob(/*clocks=*/100, /*every_clocks=*/50);
  }

  JobSpec WithoutPs() {
    JobSpec job = Undisturbed();
    job.set_strategy(ALL_REDUCE);
    job.mutable_resources()->clear_ps();
    return job;
  }

  // Two jobs, one after the other; the first one's disk hangs under `victim`.
  void TrainTwice(const std::string& victim, const std::string& point,
                  JobSpec job) {
    // A job waits for its checkpoint for eight of these at its end.
    job.mutable_limits()->set_step_timeout_seconds(2);
    ASSERT_NO_FATAL_FAILURE(
        Restart(victim, {absl::StrCat("--fault=", point, ":1:hang:600")}));
    for (const char* name : {"hangs", "next"}) {
      SCOPED_TRACE(name);
      job.set_name(name);
      job.mutable_checkpoint()->set_directory(cluster_.dir().File(name));
      ASSERT_OK_AND_ASSIGN(const std::string id, Submit(job));
      EXPECT_OK(EndOf(id, {}));
      ASSERT_OK_AND_ASSIGN(const JobStatus status, cluster_.Get(id));
      EXPECT_EQ(status.attempt(), 1u) << status.ShortDebugString();
      EXPECT_EQ(status.checkpoints_size() > 0, name != std::string("hangs"))
          << status.ShortDebugString();
    }
    ASSERT_OK(cluster_.WaitForFreeMembers(kMembers, kPatience));
    EXPECT_FALSE(
        absl::StrContains(cluster_.LogOf("scheduler"), "did not release"));
    EXPECT_TRUE(absl::StrContains(cluster_.LogOf(victim), "disk hangs"))
        << cluster_.LogOf(victim);
  }
};

// A restore whose disk hangs ends by its own limit, by the ps' name, which
// `synctl why` has while it lasts; the ps stays in the cluster.
TEST_F(HangingDiskTest, ARestoreEndsByItsOwnLimit) {
  JobSpec job = Undisturbed();
  job.mutable_limits()->set_step_timeout_seconds(5);
  job.mutable_restart()->set_max(1);
  job.mutable_checkpoint()->set_directory(cluster_.dir().File("restored"));
  ASSERT_OK_AND_ASSIGN(const std::string saved, Submit(job));
  ASSERT_OK(EndOf(saved, {}).status());
  ASSERT_OK_AND_ASSIGN(const JobStatus made, cluster_.Get(saved));
  ASSERT_GT(made.checkpoints_size(), 0);

  ASSERT_NO_FATAL_FAILURE(
      Restart("ps-0", {"--fault=restore.begin:1:hang:600"}));
  ASSERT_OK_AND_ASSIGN(
      const std::string id,
      cluster_.Submit(WriteJob(cluster_.dir(), job, MlpModel(784, 16, 10)),
                      {"--from", made.checkpoints(0).path()}));
  EXPECT_TRUE(Eventually(kPatience, [&] {
    const auto why = cluster_.Synctl({"why", id});
    return why.ok() &&
           absl::StrContains(why->out, "reading the checkpoint in") &&
           absl::StrContains(why->out, "ps 0 at ");
  }));
  ASSERT_OK_AND_ASSIGN(const JobStatus end, cluster_.WaitForEnd(id, kPatience));
  EXPECT_EQ(end.state(), FAILED);
  const std::string& reason = end.transitions().rbegin()->reason();
  EXPECT_TRUE(absl::StrContains(reason, "ps 0 at ")) << reason;
  EXPECT_TRUE(absl::StrContains(
      reason, "the disk hangs: it has not shown the files in 5s"))
      << reason;
  ASSERT_OK(cluster_.WaitForFreeMembers(kMembers, kPatience));
  EXPECT_FALSE(
      absl::StrContains(cluster_.LogOf("scheduler"), "did not release"));
}

TEST_F(HangingDiskTest, APsIsFreeForTheNextJob) {
  TrainTwice("ps-0", "checkpoint.sync", Undisturbed());
}

TEST_F(HangingDiskTest, AWorkerIsFreeForTheNextJob) {
  TrainTwice("worker-0", "checkpoint.sync", WithoutPs());
}

TEST_F(HangingDiskTest, AChiefThatCommitsIsFreeForTheNextJob) {
  TrainTwice("chief-0", "manifest.write", WithoutPs());
}

}  // namespace
}  // namespace syncline
