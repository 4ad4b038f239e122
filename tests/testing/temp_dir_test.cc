// Goal: a test's folder is removed at its end, and a folder that a failed or
// killed test left is removed by the next run of that test, but never one that
// a living process uses. Method: folders made by hand and by a child process,
// in a root of their own.

#include "tests/testing/temp_dir.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

namespace fs = std::filesystem;

TEST(TempDirTest, IsRemovedAtItsEnd) {
  auto dir = std::make_unique<TempDir>();
  const std::string path = dir->path();
  dir->Write("a/b.txt", "text");
  EXPECT_TRUE(fs::exists(path + "/a/b.txt"));
  dir.reset();
  EXPECT_FALSE(fs::exists(path));
  EXPECT_FALSE(fs::exists(path + ".lock"));
}

TEST(TempDirTest, LeftoversOfTheSameProgramAreRemoved) {
  const TempDir root;
  root.Write("left-1/logs/ps.log", "text");
  root.Write("other-2/ps.log", "text");
  root.Write("left-2.lock", "");  // the folder is gone already
  root.Write("left-file", "text");
  fs::create_directory_symlink(root.File("other-2"), root.File("left-link"));
  EXPECT_EQ(RemoveLeftovers(root.path(), "left-"), 2);
  EXPECT_FALSE(fs::exists(root.File("left-1")));
  EXPECT_FALSE(fs::exists(root.File("left-1.lock")));
  EXPECT_FALSE(fs::exists(root.File("left-2.lock")));
  EXPECT_TRUE(fs::exists(root.File("other-2/ps.log")));
  EXPECT_TRUE(fs::exists(root.File("left-file")));
  EXPECT_TRUE(fs::is_symlink(root.File("left-link")));
  EXPECT_EQ(RemoveLeftovers(root.File("absent"), "left-"), 0);
}

TEST(TempDirTest, AFolderInUseStays) {
  const TempDir used;
  const std::string root = fs::path(used.path()).parent_path();
  const std::string name = fs::path(used.path()).filename();
  EXPECT_EQ(RemoveLeftovers(root, name), 0);
  EXPECT_TRUE(fs::exists(used.path()));
  EXPECT_TRUE(fs::exists(used.path() + ".lock"));
}

TEST(TempDirTest, OneRunRemovesABoundedNumber) {
  const TempDir root;
  for (int i = 0; i < kLeftoversMax + 3; ++i) {
    root.Write(absl::StrCat("left-", i, "/file"), "");
  }
  EXPECT_EQ(RemoveLeftovers(root.path(), "left-"), kLeftoversMax);
  EXPECT_EQ(RemoveLeftovers(root.path(), "left-"), 3);
}

// The child is killed while it holds a folder: until then the folder is in use.
TEST(TempDirTest, AFolderOfAKilledProcessIsALeftover) {
  int made[2];
  ASSERT_EQ(pipe(made), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const TempDir dir;
    const std::string path = dir.path() + "\n";
    if (write(made[1], path.data(), path.size()) < 0) _exit(1);
    while (true) pause();
  }
  close(made[1]);
  std::string path;
  for (char c; read(made[0], &c, 1) == 1 && c != '\n';) path += c;
  close(made[0]);
  const std::string root = fs::path(path).parent_path();
  const std::string name = fs::path(path).filename();
  EXPECT_EQ(RemoveLeftovers(root, name), 0);
  EXPECT_TRUE(fs::exists(path));
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(RemoveLeftovers(root, name), 1);
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace syncline
