// Goal: a process's folder is its own and ends with it, and what killed
// processes left is removed without touching what is in use, another user's, or
// behind a link. Method: folders in a temporary root; a child process that is
// killed with its folder open.

#include "common/system/locked_folder.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// The result of `run` in a process of another user, or -1. REQUIRES: root.
int AsAnotherUser(const std::function<int()>& run) {
  constexpr uid_t kNobody = 65534;
  const pid_t child = fork();
  if (child == 0) _exit(setuid(kNobody) == 0 ? run() : 99);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class LockedFolderTest : public ::testing::Test {
 protected:
  // Leaves the folder and its lock as a killed process does.
  void LeaveBehind(const std::string& prefix) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
      const auto folder = LockedFolder::OpenFirst(root_, prefix);
      const char said = folder.ok() ? 'y' : 'n';
      if (write(ready[1], &said, 1) != 1) _exit(1);
      pause();
      _exit(0);
    }
    char said = 0;
    ASSERT_EQ(read(ready[0], &said, 1), 1);
    EXPECT_EQ(said, 'y');
    close(ready[0]);
    close(ready[1]);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }

  const TempDir temp_;
  const std::string root_ = temp_.File("root");
};

TEST_F(LockedFolderTest, EachProcessHasItsOwn) {
  auto first = LockedFolder::OpenFirst(root_, "work-");
  auto second = LockedFolder::OpenFirst(root_, "work-");
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE((*first)->path(), (*second)->path());
  const std::string kept = (*second)->path() + "/job";
  ASSERT_TRUE(WriteFileAtomically(kept, "results").ok());
  first->reset();
  EXPECT_TRUE(fs::exists(kept)) << "the first to end removed the other's";
  const auto named = LockedFolder::Open(root_, "work-1");
  EXPECT_EQ(named.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(named.status().message()),
              HasSubstr("in use by another process"));
  second->reset();
  EXPECT_TRUE(fs::is_empty(root_)) << "nothing is left, locks neither";
}

TEST_F(LockedFolderTest, WhatKilledProcessesLeftIsRemoved) {
  LeaveBehind("work-");
  const auto live = LockedFolder::OpenFirst(root_, "work-1-");
  ASSERT_TRUE(live.ok());
  ASSERT_TRUE(MakeDirs(root_ + "/work-7/below").ok());
  ASSERT_TRUE(WriteFileAtomically(root_ + "/work-8.lock", "").ok());
  ASSERT_TRUE(MakeDirs(root_ + "/results-0").ok());
  EXPECT_EQ(LockedFolder::RemoveLeftovers(root_, "work-"), 3);
  EXPECT_FALSE(fs::exists(root_ + "/work-0"));
  EXPECT_FALSE(fs::exists(root_ + "/work-0.lock"));
  EXPECT_FALSE(fs::exists(root_ + "/work-7"));
  EXPECT_FALSE(fs::exists(root_ + "/work-8.lock"));
  EXPECT_TRUE(fs::exists((*live)->path()));
  EXPECT_TRUE(fs::exists(root_ + "/results-0"));
}

// A cleaner of temporary files takes an old, empty lock file for litter.
TEST_F(LockedFolderTest, AFolderInUseStaysSoWithoutItsLockFile) {
  const auto folder = LockedFolder::OpenFirst(root_, "work-");
  ASSERT_TRUE(folder.ok()) << folder.status();
  const std::string kept = (*folder)->path() + "/job";
  ASSERT_TRUE(WriteFileAtomically(kept, "results").ok());
  fs::remove((*folder)->path() + ".lock");
  EXPECT_EQ(LockedFolder::Open(root_, "work-0").status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(LockedFolder::RemoveLeftovers(root_, "work-"), 0);
  const auto next = LockedFolder::OpenFirst(root_, "work-");
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ((*next)->path(), root_ + "/work-1");
  EXPECT_TRUE(fs::exists(kept));
}

TEST_F(LockedFolderTest, LinksAndOtherUsersAreLeftAlone) {
  ASSERT_TRUE(MakeDirs(root_ + "/precious").ok());
  ASSERT_TRUE(WriteFileAtomically(root_ + "/precious/file", "x").ok());
  fs::create_symlink("precious", root_ + "/work-0");
  fs::create_symlink("precious/file", root_ + "/work-1.lock");
  EXPECT_EQ(LockedFolder::RemoveLeftovers(root_, "work-"), 0);
  EXPECT_EQ(LockedFolder::Open(root_, "work-0").status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(LockedFolder::Open(root_, "work-1").ok());
  EXPECT_TRUE(fs::is_symlink(root_ + "/work-0"));
  if (geteuid() == 0) {
    ASSERT_TRUE(MakeDirs(root_ + "/work-2").ok());
    ASSERT_EQ(chown((root_ + "/work-2").c_str(), 4711, 4711), 0);
    EXPECT_EQ(LockedFolder::RemoveLeftovers(root_, "work-"), 0);
    EXPECT_EQ(LockedFolder::Open(root_, "work-2").status().code(),
              absl::StatusCode::kPermissionDenied);
  }
  EXPECT_TRUE(fs::exists(root_ + "/precious/file"));
}

TEST_F(LockedFolderTest, TheFirstThatIsFreeIsTaken) {
  ASSERT_TRUE(MakeDirs(root_).ok());
  fs::create_symlink("elsewhere", root_ + "/work-0");
  LeaveBehind("work-");  // takes 1
  const auto folder = LockedFolder::OpenFirst(root_, "work-");
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ((*folder)->path(), root_ + "/work-1");
}

TEST_F(LockedFolderTest, APathThatCannotBeWrittenIsNamed) {
  ASSERT_TRUE(MakeDirs(root_).ok());
  ASSERT_TRUE(WriteFileAtomically(root_ + "/file", "x").ok());
  const auto below_file = LockedFolder::OpenFirst(root_ + "/file", "work-");
  EXPECT_THAT(std::string(below_file.status().message()),
              HasSubstr(root_ + "/file"));
  EXPECT_FALSE(LockedFolder::OpenFirst("/proc/nowhere", "work-").ok());
}

// Daemons of two users may share a folder, as in /tmp. The lock file of the one
// cannot be opened by the other: that says "taken", and not "broken".
TEST_F(LockedFolderTest, AnotherUsersLockIsPassedOver) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
  const auto ours = LockedFolder::OpenFirst(root_, "work-");
  ASSERT_TRUE(ours.ok()) << ours.status();
  ASSERT_EQ(fs::status(root_ + "/work-0.lock").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
  fs::permissions(temp_.path(), fs::perms::all);
  // As /tmp is: every user writes, and removes only files of their own.
  fs::permissions(root_, fs::perms::all | fs::perms::sticky_bit);
  EXPECT_EQ(AsAnotherUser([&] {
              const auto folder = LockedFolder::OpenFirst(root_, "work-");
              if (!folder.ok()) return 1;
              return (*folder)->path() == root_ + "/work-1" ? 0 : 2;
            }),
            0);
  // A folder that a name demands is refused, and stays as it is.
  EXPECT_EQ(AsAnotherUser([&] {
              const auto named = LockedFolder::Open(root_, "work-0");
              return absl::IsPermissionDenied(named.status()) ? 0 : 1;
            }),
            0);
  EXPECT_EQ(AsAnotherUser(
                [&] { return LockedFolder::RemoveLeftovers(root_, "work-"); }),
            0);
  EXPECT_TRUE(fs::is_directory((*ours)->path()));
  EXPECT_TRUE(fs::exists(root_ + "/work-0.lock"));
}

}  // namespace
}  // namespace syncline
