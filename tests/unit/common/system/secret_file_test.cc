// Goal: a secret is never readable by others, and is replaced as a whole.
// Method: files with other permissions in the way.

#include "common/system/secret_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "common/system/file.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

unsigned ModeOf(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(stat(path.c_str(), &info), 0);
  return info.st_mode & 0777;
}

TEST(SecretFileTest, OnlyTheOwnerReadsIt) {
  const TempDir dir;
  const std::string path = dir.Write("key", "older");
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  ASSERT_OK(WriteSecretFile(path, "secret"));
  EXPECT_EQ(ModeOf(path), 0600u);
  EXPECT_EQ(*ReadFile(path, 100), "secret");
}

TEST(SecretFileTest, AReplacedFileKeepsItsMode) {
  const TempDir dir;
  const std::string path = dir.Write("tokens", "older");
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  ASSERT_OK(ReplaceSecretFile(path, "newer"));
  EXPECT_EQ(ModeOf(path), 0640u);
  EXPECT_EQ(*ReadFile(path, 100), "newer");
  const std::string other = dir.File("other");
  ASSERT_OK(ReplaceSecretFile(other, "new"));
  EXPECT_EQ(ModeOf(other), 0600u);
}

// A scheduler that runs as another user must still be able to read it.
TEST(SecretFileTest, AReplacedFileKeepsItsOwner) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  const TempDir dir;
  for (const auto write : {&WriteSecretFile, &ReplaceSecretFile}) {
    const std::string path = dir.Write("tokens", "older");
    if (chown(path.c_str(), 12345, 12346) != 0) {
      GTEST_SKIP() << "this root may not give files away";
    }
    ASSERT_OK(write(path, "newer"));
    struct stat info = {};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_uid, 12345u);
    EXPECT_EQ(info.st_gid, 12346u);
    EXPECT_EQ(*ReadFile(path, 100), "newer");
    ASSERT_OK(RemoveTree(path));
  }
}

TEST(SecretFileTest, AFolderThatIsNotThereIsNamed) {
  const TempDir dir;
  const absl::Status status = WriteSecretFile(dir.File("no/key"), "secret");
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
}

}  // namespace
}  // namespace syncline
