// Goal: a folder for spilled rows is found good or bad before it is needed.
// Method: a fresh folder, one that cannot be made, one that cannot be written.

#include "common/system/free_disk.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

TEST(FreeDiskTest, AFolderIsMadeAndMeasured) {
  const TempDir dir;
  const auto free = FreeDiskBytes(dir.File("a/b"));
  ASSERT_TRUE(free.ok()) << free.status();
  EXPECT_GT(*free, 0u);
  EXPECT_TRUE(FreeDiskBytes(dir.File("a/b")).ok());
}

TEST(FreeDiskTest, WhatCannotBeWrittenIsAnErrorThatNamesIt) {
  for (const char* folder : {"/proc/syncline", "/dev/null/rows"}) {
    const auto free = FreeDiskBytes(folder);
    ASSERT_FALSE(free.ok());
    EXPECT_THAT(std::string(free.status().message()),
                testing::HasSubstr(folder));
  }
}

}  // namespace
}  // namespace syncline
