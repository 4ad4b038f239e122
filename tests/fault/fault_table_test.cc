// Goal: whatever point of the table of faults a process dies or fails at, a job
// with checkpoints and `restart` ends with the bits of one that nothing
// happened to, or fails by name. Method: the real executables, each point of
// common/base/fault_points.h once for each action; the process that has died is
// started again without the fault. Each point must have been reached.

#include <csignal>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/fault_points.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

constexpr uint64_t kModelBytesMax = 64 << 20;
constexpr absl::Duration kPatience = absl::Minutes(4);
constexpr int kMembers = 4;

// The time at which a point strikes: in the middle of a job, if it is reached
// more than once.
int64_t CountOf(FaultPoint point) {
  static const std::map<FaultPoint, int64_t> kCounts = {
      // A submission stores the model as a result is stored, and writes some
      // records before it is answered; and small files are tried on the spill
      // folder when a ps starts.
      {FaultPoint::kFileRename, 5},       {FaultPoint::kPushReceived, 150},
      {FaultPoint::kPushAnswer, 150},     {FaultPoint::kStepBegin, 150},
      {FaultPoint::kRecordWrite, 10},     {FaultPoint::kRecordWritten, 10},
      {FaultPoint::kCheckpointDelete, 1}, {FaultPoint::kRestoreBegin, 1},
      {FaultPoint::kResultUpload, 1},     {FaultPoint::kResultStore, 4},
      {FaultPoint::kResultStored, 4},
  };
  const auto count = kCounts.find(point);
  return count == kCounts.end() ? 2 : count->second;
}

class FaultTableTest : public testing::Test {
 protected:
  FaultTableTest() : cluster_({.ps = 2, .workers = 2}) {}

  void SetUp() override {
    ASSERT_OK(cluster_.Start());
    ASSERT_OK_AND_ASSIGN(const std::string id, Submit());
    ASSERT_OK_AND_ASSIGN(reference_, EndOf(id, {}));
    ASSERT_FALSE(reference_.empty());
  }

  absl::StatusOr<std::string> Submit() {
    JobSpec job = DigitsJob();
    job.mutable_data()->mutable_train()->mutable_digits()->set_count(3'200);
    job.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
    job.mutable_learning_rate()->set_base(0.002);
    job.mutable_training()->set_batch_size(8);
    job.mutable_training()->set_epochs(2);
    job.mutable_training()->set_threads(1);
    job.mutable_resources()->set_workers(2);
    job.mutable_resources()->set_ps(2);
    job.mutable_checkpoint()->set_every_clocks(60);
    job.mutable_checkpoint()->set_directory(cluster_.dir().File("saved"));
    job.mutable_checkpoint()->set_keep_last(2);
    job.mutable_restart()->set_max(5);
    job.mutable_restart()->set_backoff_seconds(0.1);
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

  void Try(const FaultPointInfo& info, const std::string& action) {
    const std::string fault =
        absl::StrCat(info.name, ":", CountOf(info.point), ":", action);
    SCOPED_TRACE(fault);
    const std::string victim = info.process == "scheduler" ? "scheduler"
                               : info.process == "worker"  ? "chief-0"
                                                           : "ps-0";
    const size_t before = cluster_.LogOf(victim).size();
    ASSERT_NO_FATAL_FAILURE(Restart(victim, {absl::StrCat("--fault=", fault)}));
    const std::string said =
        absl::StrCat("fault point ", info.name, " reached");
    const auto reached = [&] {
      return absl::StrContains(cluster_.LogOf(victim).substr(before), said);
    };
    ASSERT_OK_AND_ASSIGN(const std::string id, Submit());
    if (info.point == FaultPoint::kRestoreBegin) {
      ASSERT_TRUE(Eventually(kPatience, [&] {
        const auto job = cluster_.Get(id);
        return job.ok() && job->checkpoints_size() > 0;
      }));
      cluster_.daemon("worker-0").Signal(SIGKILL);
      ASSERT_TRUE(
          cluster_.daemon("worker-0").WaitUntil(absl::Now() + kPatience));
      ASSERT_OK(cluster_.StartDaemon("worker-0"));
    }
    const absl::StatusOr<std::string> model = EndOf(id, victim);
    EXPECT_TRUE(reached()) << cluster_.LogOf(victim).substr(before);
    if (model.ok()) {
      EXPECT_TRUE(*model == reference_) << "other bits";
    } else {
      // Only an error may end a job, and the job's reason names it.
      EXPECT_EQ(action, "error") << model.status();
      EXPECT_EQ(model.status().code(), absl::StatusCode::kAborted)
          << model.status();
      EXPECT_THAT(std::string(model.status().message()),
                  testing::HasSubstr(absl::StrCat("fault point ", info.name)));
    }
    ASSERT_NO_FATAL_FAILURE(Restart(victim, {}));
  }

  // A point that every process reaches is tried in a ps: it renames a manifest.
  void TryAll(const std::string& process, const std::string& action) {
    for (const FaultPointInfo& info : FaultPoints()) {
      if (info.is_mutant) continue;
      if (info.process != process &&
          !(info.process == "every" && process == "ps")) {
        continue;
      }
      ASSERT_NO_FATAL_FAILURE(Try(info, action));
    }
  }

  TestCluster cluster_;
  std::string reference_;
};

TEST_F(FaultTableTest, DeathsOfAPs) { TryAll("ps", "exit"); }
TEST_F(FaultTableTest, DeathsOfTheChief) { TryAll("worker", "exit"); }
TEST_F(FaultTableTest, DeathsOfTheScheduler) { TryAll("scheduler", "exit"); }
TEST_F(FaultTableTest, ErrorsOfAPs) { TryAll("ps", "error"); }
TEST_F(FaultTableTest, ErrorsOfTheChief) { TryAll("worker", "error"); }
TEST_F(FaultTableTest, ErrorsOfTheScheduler) { TryAll("scheduler", "error"); }

}  // namespace
}  // namespace syncline
