// Goal: two downloads never write to one folder, and what a killed one left is
// removed. Method: claims of one process on a temporary folder; the lock
// belongs to the opened folder, so that they meet as two processes would.

#include "scheduler/ctl/folder_claim.h"

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace syncline::ctl {
namespace {

using testing::HasSubstr;

TEST(FolderClaimTest, TheSecondIsToldWhoHasIt) {
  const TempDir dir;
  const std::string folder = dir.File("to/results");
  {
    const auto first = FolderClaim::Take(folder);
    ASSERT_TRUE(first.ok()) << first.status();
    const auto second = FolderClaim::Take(folder + "/");
    EXPECT_TRUE(absl::IsFailedPrecondition(second.status())) << second.status();
    EXPECT_THAT(std::string(second.status().message()),
                HasSubstr("another synctl"));
    EXPECT_THAT(std::string(second.status().message()), HasSubstr(folder));
  }
  EXPECT_TRUE(FolderClaim::Take(folder).ok()) << "the first has ended";
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(FolderClaimTest, AFileIsNoFolder) {
  const TempDir dir;
  EXPECT_FALSE(FolderClaim::Take(dir.Write("file", "x")).ok());
}

TEST(PartNameTest, IsNeverTheSame) {
  EXPECT_NE(PartName("trained.onnx"), PartName("trained.onnx"));
}

TEST(RemovePartsTest, OnlyItsOwnGo) {
  const TempDir dir;
  const std::string file = dir.Write("trained.onnx", "whole");
  dir.Write(std::filesystem::path(PartName(file)).filename().string(), "half");
  dir.Write("trained.onnx.part", "a user's");
  dir.Write(PartName("other.onnx"), "of another file");
  RemoveParts(file);
  int left = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
    EXPECT_NE(entry.path().filename().string().size(),
              std::string("trained.onnx.0123456789abcdef.part").size());
    ++left;
  }
  EXPECT_EQ(left, 3);
}

}  // namespace
}  // namespace syncline::ctl
