// Goal: a local cluster that cannot start says why, and leaves nothing.
// Method: shell scripts in place of the daemons; the real ones are used by
// tests/cluster/local_cluster_test.cc.

#include "scheduler/ctl/local_cluster.h"

#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline::ctl {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class LocalClusterStartTest : public testing::Test {
 protected:
  void Script(const std::string& name, const std::string& body) {
    const std::string file =
        dir_.Write(name, absl::StrCat("#!/bin/sh\n", body, "\n"));
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  }
  absl::StatusOr<std::unique_ptr<LocalCluster>> Start() {
    LocalCluster::Options options;
    options.binary_dir = options.run_dir = options.log_dir = dir_.path();
    options.workers = 2;
    options.evaluator = true;
    options.bounds_data = bounds_data_;
    return LocalCluster::Start(options, &interrupts_);
  }

  // Writes an address where the scheduler would, and stays.
  static constexpr char kListens[] = R"(for flag; do
  case "$flag" in --port-file=*) echo 127.0.0.1:4711 > "${flag#*=}" ;; esac
done
exec sleep 1000)";

  const TempDir dir_;
  InterruptSignals interrupts_;
  bool bounds_data_ = false;
};

TEST_F(LocalClusterStartTest, AnExecutableThatIsNotThereIsNamed) {
  const auto cluster = Start();
  EXPECT_TRUE(absl::IsNotFound(cluster.status())) << cluster.status();
  EXPECT_THAT(std::string(cluster.status().message()),
              HasSubstr("syncline-scheduler"));
}

TEST_F(LocalClusterStartTest, ASchedulerThatEndsIsToldWithItsLog) {
  Script("syncline-scheduler", "echo no space left; exit 4");
  const auto cluster = Start();
  EXPECT_TRUE(absl::IsUnavailable(cluster.status())) << cluster.status();
  EXPECT_THAT(std::string(cluster.status().message()),
              AllOf(HasSubstr("scheduler exited with code 4"),
                    HasSubstr("no space left")));
}

TEST_F(LocalClusterStartTest, AnAddressOfAnEarlierRunCountsForNothing) {
  dir_.Write("scheduler.address", "127.0.0.1:1");
  Script("syncline-scheduler", "exit 4");
  EXPECT_TRUE(absl::IsUnavailable(Start().status()));
}

TEST_F(LocalClusterStartTest, CtrlCEndsTheWaitForTheScheduler) {
  Script("syncline-scheduler", "exec sleep 1000");
  kill(getpid(), SIGINT);
  EXPECT_TRUE(absl::IsCancelled(Start().status()));
}

TEST_F(LocalClusterStartTest, ADaemonThatDiesIsNamed) {
  Script("syncline-scheduler", kListens);
  Script("syncline-worker", "exec sleep 1000");
  Script("syncline-ps", "echo cannot do it; exit 1");
  const auto cluster = Start();
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ((*cluster)->scheduler_address(), "127.0.0.1:4711");
  EXPECT_EQ((*cluster)->member_count(), 4);
  absl::Status alive;
  while ((alive = (*cluster)->CheckAlive()).ok()) {
    interrupts_.WaitFor(absl::Milliseconds(5));  // ctest's timeout ends it
  }
  EXPECT_THAT(
      std::string(alive.message()),
      AllOf(HasSubstr("ps-0 exited with code 1"), HasSubstr("cannot do it")));
}

TEST_F(LocalClusterStartTest, AWorkerThatTheJobGoesOnWithoutMayEnd) {
  Script("syncline-scheduler", kListens);
  Script("syncline-ps", "exec sleep 1000");
  Script("syncline-worker",
         R"(case "$*" in *worker:0*) exit 1 ;; esac; exec sleep 1000)");
  const auto cluster = Start();
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  absl::Status alive;
  while ((alive = (*cluster)->CheckAlive()).ok()) {
    interrupts_.WaitFor(absl::Milliseconds(5));  // ctest's timeout ends it
  }
  EXPECT_THAT(std::string(alive.message()), HasSubstr("worker-0 exited"));
  Task task;
  task.set_type(WORKER);
  EXPECT_OK((*cluster)->CheckAlive({LocalCluster::NameOf(task)}));
  task.set_index(1);
  EXPECT_TRUE(absl::IsUnavailable(
      (*cluster)->CheckAlive({LocalCluster::NameOf(task)})));
}

TEST_F(LocalClusterStartTest, WorkersAreBoundWhereTheUserSaysSo) {
  Script("syncline-scheduler", kListens);
  Script("syncline-ps", "exec sleep 1000");
  for (const bool bound : {false, true}) {
    bounds_data_ = bound;
    // A file of its own: a worker of the cluster before may write its flags
    // late. Written at once, so that the file has all flags when it is there.
    const std::string file = dir_.File(bound ? "flags.bound" : "flags.free");
    Script("syncline-worker", absl::StrCat("echo $* > ", file, ".$$; mv ", file,
                                           ".$$ ", file, "; exec sleep 1000"));
    const auto cluster = Start();
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    absl::StatusOr<std::string> flags = ReadFile(file, 1 << 16);
    while (!flags.ok()) {
      interrupts_.WaitFor(absl::Milliseconds(5));  // ctest's timeout ends it
      flags = ReadFile(file, 1 << 16);
    }
    EXPECT_THAT(*flags, HasSubstr("--data-root="));
    EXPECT_EQ(absl::StrContains(*flags, "--data-outside-root"), !bound);
  }
}

TEST(LastLinesTest, TakesTheEndOnly) {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 5000; ++i) absl::StrAppend(&text, "line ", i, "\n");
  EXPECT_EQ(LastLines(dir.Write("log", text), 2), "line 4998\nline 4999");
  EXPECT_EQ(LastLines(dir.Write("short", "only"), 2), "only");
  EXPECT_EQ(LastLines(dir.File("none"), 2), "");
}

}  // namespace
}  // namespace syncline::ctl
