// Goal: contents survive the round trip, limits hold, and every error names the
// path and the reason. Method: a directory per test.

#include "common/system/file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FileTest : public ::testing::Test {
 protected:
  std::string Path(absl::string_view name) const {
    return absl::StrCat(dir_, "/", name);
  }
  const TempDir temp_;
  const std::string dir_ = temp_.path();
};

TEST_F(FileTest, WritesAndReadsBack) {
  const std::string content("a\0b\n", 4);
  ASSERT_TRUE(WriteFileAtomically(Path("x"), "older and longer").ok());
  ASSERT_TRUE(WriteFileAtomically(Path("x"), content).ok());
  EXPECT_EQ(*ReadFile(Path("x"), 4), content);
  EXPECT_EQ(*FileSize(Path("x")), 4u);
  // Nothing is left beside it.
  int entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir_)) {
    EXPECT_EQ(entry.path().filename(), "x");
    ++entries;
  }
  EXPECT_EQ(entries, 1);
}

TEST_F(FileTest, MissingFileIsNotFoundAndNamed) {
  const absl::Status status = ReadFile(Path("absent"), 10).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr(Path("absent")), HasSubstr("No such file or directory")));
  EXPECT_EQ(FileSize(Path("absent")).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(FileTest, LargerThanTheLimitIsRefused) {
  ASSERT_TRUE(WriteFileAtomically(Path("x"), "12345").ok());
  EXPECT_TRUE(ReadFile(Path("x"), 5).ok());
  EXPECT_EQ(ReadFile(Path("x"), 4).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(FileTest, DirectoriesAndPipesAreRefusedAtOnce) {
  EXPECT_THAT(std::string(ReadFile(dir_, 10).status().message()),
              HasSubstr("a directory"));
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(ReadFile(Path("pipe"), 10).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(FileTest, FailedWriteLeavesTheOldContent) {
  ASSERT_TRUE(MakeDirs(Path("busy/inside")).ok());
  EXPECT_FALSE(WriteFileAtomically(Path("busy"), "x").ok());
  EXPECT_TRUE(std::filesystem::is_directory(Path("busy/inside")));
  EXPECT_EQ(WriteFileAtomically(Path("no/such/dir"), "x").code(),
            absl::StatusCode::kNotFound);
}

TEST_F(FileTest, RemoveTreeIsIdempotentAndDoesNotFollowLinks) {
  ASSERT_TRUE(MakeDirs(Path("a/b")).ok());
  ASSERT_TRUE(WriteFileAtomically(Path("kept"), "x").ok());
  std::filesystem::create_symlink(Path("kept"), Path("a/b/link"));
  EXPECT_TRUE(RemoveTree(Path("a")).ok());
  EXPECT_TRUE(RemoveTree(Path("a")).ok());
  EXPECT_TRUE(FileSize(Path("kept")).ok());
  EXPECT_FALSE(std::filesystem::exists(Path("a")));
}

}  // namespace
}  // namespace syncline
