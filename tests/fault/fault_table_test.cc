// Goal: whatever point of the table of faults a process dies or fails at, a job
// with checkpoints and `restart` ends with the bits of one that nothing
// happened to, or fails by name. Method: the real executables, each point of
// common/base/fault_points.h once for each action; the process that has died is
// started again without the fault. Each point must have been reached.

#include <csignal>
#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/fault_points.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/fault_fixture.h"
#include "tests/testing/eventually.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

// The time at which a point strikes: in the middle of a job, if it is reached
// more than once.
int64_t CountOf(FaultPoint point) {
  static const std::map<FaultPoint, int64_t> kCounts = {
      // A submission stores the model as a result is stored, and writes some
      // records before it is answered; and small files are tried on the spill
      // folder when a ps starts.
      {FaultPoint::kFileRename, 5},       {FaultPoint::kPushReceived, 80},
      {FaultPoint::kPushAnswer, 80},      {FaultPoint::kStepBegin, 80},
      {FaultPoint::kRecordWrite, 10},     {FaultPoint::kRecordWritten, 10},
      {FaultPoint::kCheckpointDelete, 1}, {FaultPoint::kRestoreBegin, 1},
      {FaultPoint::kResultUpload, 1},     {FaultPoint::kResultStore, 4},
      {FaultPoint::kResultStored, 4},
  };
  const auto count = kCounts.find(point);
  return count == kCounts.end() ? 2 : count->second;
}

class FaultTableTest : public FaultFixture {
 protected:
  JobSpec Undisturbed() override {
    return SavingJob(/*clocks=*/240, /*every_clocks=*/40);
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
    ASSERT_OK_AND_ASSIGN(const std::string id, Submit(Undisturbed()));
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
      // Changes have a test of their own: strategy_faults_test.
      if (info.is_mutant || info.needs_change) continue;
      if (info.process != process &&
          !(info.process == "every" && process == "ps")) {
        continue;
      }
      ASSERT_NO_FATAL_FAILURE(Try(info, action));
    }
  }
};

TEST_F(FaultTableTest, DeathsOfAPs) { TryAll("ps", "exit"); }
TEST_F(FaultTableTest, DeathsOfTheChief) { TryAll("worker", "exit"); }
TEST_F(FaultTableTest, DeathsOfTheScheduler) { TryAll("scheduler", "exit"); }
TEST_F(FaultTableTest, ErrorsOfAPs) { TryAll("ps", "error"); }
TEST_F(FaultTableTest, ErrorsOfTheChief) { TryAll("worker", "error"); }
TEST_F(FaultTableTest, ErrorsOfTheScheduler) { TryAll("scheduler", "error"); }

}  // namespace
}  // namespace syncline
