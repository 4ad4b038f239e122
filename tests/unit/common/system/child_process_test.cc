// Goal: children start with what they were given, are told apart by how they
// end, and none outlives its owner. Method: /bin/sh as the child.

#include "common/system/child_process.h"

#include <csignal>
#include <filesystem>

#include "absl/time/clock.h"
#include "common/system/file.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

absl::Time Soon() { return absl::Now() + absl::Seconds(30); }

ChildProcess::Options Shell(const std::string& script) {
  ChildProcess::Options options;
  options.argv = {"/bin/sh", "-c", script};
  return options;
}

std::unique_ptr<ChildProcess> SpawnShell(const std::string& script) {
  auto child = ChildProcess::Spawn(Shell(script));
  EXPECT_TRUE(child.ok()) << child.status();
  return *std::move(child);
}

bool Exists(pid_t pid) { return kill(pid, 0) == 0; }

TEST(ChildProcessTest, ReportsTheExitCode) {
  const auto exit = SpawnShell("exit 7")->WaitUntil(Soon());
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 7);
  EXPECT_EQ(exit->signal, 0);
  EXPECT_EQ(exit->ToString(), "exited with code 7");
}

TEST(ChildProcessTest, ReportsTheSignal) {
  const auto child = SpawnShell("exec sleep 1000");
  EXPECT_FALSE(child->Poll().has_value());
  child->Signal(SIGKILL);
  const auto exit = child->WaitUntil(Soon());
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->signal, SIGKILL);
  EXPECT_EQ(exit->ToString(), "killed by signal 9");
}

TEST(ChildProcessTest, WaitEndsAtItsDeadlineWhileTheChildRuns) {
  const auto child = SpawnShell("exec sleep 1000");
  EXPECT_FALSE(
      child->WaitUntil(absl::Now() + absl::Milliseconds(5)).has_value());
}

TEST(ChildProcessTest, IsGoneAfterItsOwner) {
  pid_t pid = 0;
  {
    const auto child = SpawnShell("exec sleep 1000");
    pid = child->pid();
    ASSERT_TRUE(Exists(pid));
  }
  EXPECT_FALSE(Exists(pid));
}

TEST(ChildProcessTest, TakesEnvironmentAndWritesOutput) {
  const TempDir dir;
  const std::string file = dir.File("output");
  setenv("SYNCLINE_TEST_REMOVED", "present", 1);
  ChildProcess::Options options =
      Shell("echo \"$SYNCLINE_TEST_SET,$SYNCLINE_TEST_REMOVED\"; echo e >&2");
  options.environment = {{"SYNCLINE_TEST_SET", "a b"},
                         {"SYNCLINE_TEST_REMOVED", std::nullopt}};
  options.output_file = file;
  auto child = ChildProcess::Spawn(options);
  ASSERT_TRUE(child.ok()) << child.status();
  ASSERT_TRUE((*child)->WaitUntil(Soon()).has_value());
  EXPECT_EQ(*ReadFile(file, 100), "a b,\ne\n");
}

TEST(ChildProcessTest, StartsWithoutTheParentsBlockedSignals) {
  sigset_t terminate;
  sigemptyset(&terminate);
  sigaddset(&terminate, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &terminate, nullptr);
  const auto child = SpawnShell("exec sleep 1000");
  child->Signal(SIGTERM);
  const auto exit = child->WaitUntil(Soon());
  pthread_sigmask(SIG_UNBLOCK, &terminate, nullptr);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->signal, SIGTERM);
}

TEST(ChildProcessTest, NamesAnExecutableThatIsNotThere) {
  ChildProcess::Options options;
  options.argv = {"/no/such/executable"};
  const auto child = ChildProcess::Spawn(options);
  EXPECT_TRUE(absl::IsNotFound(child.status())) << child.status();
  EXPECT_NE(child.status().message().find("/no/such/executable"),
            absl::string_view::npos);
}

TEST(StopAllTest, KillsWhoDoesNotListen) {
  const TempDir dir;
  const std::string ready = dir.File("ready");
  // A signal that is ignored stays ignored across exec.
  const auto stubborn =
      SpawnShell("trap '' TERM; : > " + ready + "; exec sleep 1000");
  const absl::Time deadline = Soon();
  while (!std::filesystem::exists(ready) && absl::Now() < deadline) {
    stubborn->WaitUntil(absl::Now() + absl::Milliseconds(5));
  }
  ASSERT_TRUE(std::filesystem::exists(ready));
  const auto polite = SpawnShell("exec sleep 1000");
  StopAll({stubborn.get(), polite.get()}, absl::Now() + absl::Seconds(1));
  EXPECT_EQ(stubborn->Poll()->signal, SIGKILL);
  EXPECT_EQ(polite->Poll()->signal, SIGTERM);
}

}  // namespace
}  // namespace syncline
