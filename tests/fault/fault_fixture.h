#ifndef SYNCLINE_TESTS_FAULT_FAULT_FIXTURE_H_
#define SYNCLINE_TESTS_FAULT_FAULT_FIXTURE_H_

// Steps of tests of fault points: a process of a real cluster is started with a
// fault, a small job runs, the process that has died is started again without
// the fault, and the job's end is compared with one that nothing happened to.

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/system/file.h"
#include "gtest/gtest.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {

// Two ps and two workers, and the model that JobSpec Job() gives undisturbed.
class FaultFixture : public testing::Test {
 protected:
  static constexpr uint64_t kModelBytesMax = 64 << 20;
  static constexpr absl::Duration kPatience = absl::Minutes(4);
  static constexpr int kMembers = 4;

  FaultFixture()
      : cluster_({.ps = 2, .workers = 2, .step_pause = absl::Milliseconds(4)}) {
  }

  void SetUp() override {
    ASSERT_OK(cluster_.Start());
    ASSERT_OK_AND_ASSIGN(const std::string id, Submit(Undisturbed()));
    ASSERT_OK_AND_ASSIGN(reference_, EndOf(id, {}));
    ASSERT_FALSE(reference_.empty());
  }

  // The job that nothing happens to.
  virtual JobSpec Undisturbed() = 0;

  // In SYNC, with Adam's state, checkpoints and `restart`: `clocks` of two
  // workers, in two epochs.
  JobSpec SavingJob(int64_t clocks, uint64_t every_clocks) {
    JobSpec job = DigitsJob();
    job.mutable_data()->mutable_train()->mutable_digits()->set_count(
        static_cast<uint64_t>(clocks) * 8);
    job.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
    job.mutable_learning_rate()->set_base(0.002);
    job.mutable_training()->set_batch_size(8);
    job.mutable_training()->set_epochs(2);
    job.mutable_training()->set_threads(1);
    job.mutable_resources()->set_workers(2);
    job.mutable_resources()->set_ps(2);
    job.mutable_checkpoint()->set_every_clocks(every_clocks);
    job.mutable_checkpoint()->set_directory(cluster_.dir().File("saved"));
    job.mutable_checkpoint()->set_keep_last(2);
    job.mutable_restart()->set_max(5);
    job.mutable_restart()->set_backoff_seconds(0.1);
    return job;
  }
  absl::StatusOr<std::string> Submit(const JobSpec& job) {
    return cluster_.Submit(
        WriteJob(cluster_.dir(), job, MlpModel(784, 16, 10)));
  }

  // The model of the job at its end, or what it failed of. The process `victim`
  // is started again when it has died.
  absl::StatusOr<std::string> EndOf(const std::string& id,
                                    const std::string& victim) {
    absl::StatusOr<JobStatus> job;
    const bool ended = Eventually(kPatience, [&] {
      Revive(victim);
      job = cluster_.Get(id);
      return job.ok() && ctl::HasEnded(job->state());
    });
    if (!ended) {
      return absl::DeadlineExceededError(job.ok() ? job->ShortDebugString()
                                                  : job.status().ToString());
    }
    if (job->state() != SUCCEEDED) {
      return absl::AbortedError(job->transitions().rbegin()->reason());
    }
    absl::StatusOr<std::string> file;
    Eventually(kPatience, [&] {
      Revive(victim);
      file = cluster_.FetchModel(id);
      return file.ok();
    });
    if (!file.ok()) return file.status();
    return ReadFile(*file, kModelBytesMax);
  }
  void Revive(const std::string& victim) {
    if (victim.empty() || !cluster_.daemon(victim).Poll().has_value()) return;
    EXPECT_OK(cluster_.StartDaemon(victim));
  }

  // Starts the process again, with `flags`.
  void Restart(const std::string& name, const std::vector<std::string>& flags) {
    cluster_.daemon(name).Signal(SIGKILL);
    ASSERT_TRUE(cluster_.daemon(name).WaitUntil(absl::Now() + kPatience));
    ASSERT_OK(cluster_.StartDaemon(name, flags));
    ASSERT_OK(cluster_.WaitForFreeMembers(kMembers, kPatience));
  }

  TestCluster cluster_;
  std::string reference_;
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_FAULT_FAULT_FIXTURE_H_
