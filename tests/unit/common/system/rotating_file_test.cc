// Goal: lines are whole, sizes bounded, the newest lines kept, and a restart
// appends. Method: tiny limits in a directory per test.

#include "common/system/rotating_file.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/system/file.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

class RotatingFileTest : public ::testing::Test {
 protected:
  std::string Content(absl::string_view suffix) const {
    return ReadFile(absl::StrCat(path_, suffix), 1 << 20).value_or("(absent)");
  }
  const TempDir temp_;
  const std::string dir_ = temp_.path();
  const std::string path_ = dir_ + "/log";
};

TEST_F(RotatingFileTest, KeepsTheNewestFiles) {
  auto file = RotatingFile::Open(path_, /*rotate_bytes=*/8, /*files_kept=*/3);
  ASSERT_TRUE(file.ok()) << file.status();
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE((*file)->Append(absl::StrCat("ln", i, "\n")).ok());
  }
  EXPECT_EQ(Content(""), "ln8\nln9\n");
  EXPECT_EQ(Content(".1"), "ln6\nln7\n");
  EXPECT_EQ(Content(".2"), "ln4\nln5\n");
  EXPECT_EQ(Content(".3"), "(absent)");
}

TEST_F(RotatingFileTest, ALineLongerThanTheLimitIsNotCut) {
  auto file = RotatingFile::Open(path_, 4, 2);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Append("a very long line\n").ok());
  ASSERT_TRUE((*file)->Append("b\n").ok());
  EXPECT_EQ(Content(""), "b\n");
  EXPECT_EQ(Content(".1"), "a very long line\n");
}

TEST_F(RotatingFileTest, OneFileStartsOver) {
  auto file = RotatingFile::Open(path_, 4, 1);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Append("aaa\n").ok());
  ASSERT_TRUE((*file)->Append("bbb\n").ok());
  EXPECT_EQ(Content(""), "bbb\n");
  EXPECT_EQ(Content(".1"), "(absent)");
}

TEST_F(RotatingFileTest, ARestartAppendsAndCountsWhatIsThere) {
  ASSERT_TRUE((*RotatingFile::Open(path_, 8, 2))->Append("aaa\n").ok());
  ASSERT_TRUE((*RotatingFile::Open(path_, 8, 2))->Append("bbb\n").ok());
  EXPECT_EQ(Content(""), "aaa\nbbb\n");
  ASSERT_TRUE((*RotatingFile::Open(path_, 8, 2))->Append("ccc\n").ok());
  EXPECT_EQ(Content(""), "ccc\n");
  EXPECT_EQ(Content(".1"), "aaa\nbbb\n");
}

// Sets a soft limit of this process for as long as it lives.
class SoftLimit {
 public:
  SoftLimit(__rlimit_resource resource, rlim_t value) : resource_(resource) {
    getrlimit(resource_, &before_);
    const rlimit limit = {value, before_.rlim_max};
    setrlimit(resource_, &limit);
  }
  ~SoftLimit() { setrlimit(resource_, &before_); }

 private:
  const __rlimit_resource resource_;
  rlimit before_;
};

TEST_F(RotatingFileTest, ARotationThatFailsLosesNothing) {
  auto file = RotatingFile::Open(path_, 4, 3);
  ASSERT_TRUE(file.ok());
  for (const char* line : {"aaa\n", "bbb\n", "ccc\n"}) {
    ASSERT_TRUE((*file)->Append(line).ok());
  }
  {
    const SoftLimit no_new_files(RLIMIT_NOFILE, 0);
    for (const char* line : {"ddd\n", "eee\n", "fff\n"}) {
      ASSERT_TRUE((*file)->Append(line).ok());
    }
  }
  EXPECT_EQ(Content(""), "ccc\nddd\neee\nfff\n");
  EXPECT_EQ(Content(".1"), "bbb\n");
  EXPECT_EQ(Content(".2"), "aaa\n");
  // It is tried again.
  ASSERT_TRUE((*file)->Append("ggg\n").ok());
  EXPECT_EQ(Content(""), "ggg\n");
  EXPECT_EQ(Content(".1"), "ccc\nddd\neee\nfff\n");
  EXPECT_EQ(Content(".2"), "bbb\n");
}

TEST_F(RotatingFileTest, ALineAfterHalfALineBeginsAnew) {
  auto file = RotatingFile::Open(path_, 1 << 20, 2);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Append("aaa\n").ok());
  {
    // As a full disk does: six bytes fit.
    const auto before = std::signal(SIGXFSZ, SIG_IGN);
    const SoftLimit full(RLIMIT_FSIZE, 6);
    EXPECT_FALSE((*file)->Append("bbb\n").ok());
    EXPECT_FALSE((*file)->Append("ccc\n").ok());
    std::signal(SIGXFSZ, before);
  }
  ASSERT_TRUE((*file)->Append("ddd\n").ok());
  ASSERT_TRUE((*file)->Append("eee\n").ok());
  EXPECT_EQ(Content(""), "aaa\nbb\nddd\neee\n");
}

TEST_F(RotatingFileTest, ALineAfterHalfALineOfAnotherProcessBeginsAnew) {
  std::ofstream(path_) << "aaa\nbb";
  {
    auto file = RotatingFile::Open(path_, 1 << 20, 2);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->Append("ccc\n").ok());
  }
  auto file = RotatingFile::Open(path_, 1 << 20, 2);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Append("ddd\n").ok());
  EXPECT_EQ(Content(""), "aaa\nbb\nccc\nddd\n");
}

TEST_F(RotatingFileTest, OpenNamesThePathThatFails) {
  const auto file = RotatingFile::Open(dir_ + "/no/log", 8, 2);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace syncline
