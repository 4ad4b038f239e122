// Goal: chunks keep what is written to them until they are given back, the file
// keeps to its bytes, and a refusal of the disk names the folder and changes
// nothing. Method: chunks that say whose they are.

#include "server/spill/spill_file.h"

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline::ps {
namespace {

using ::testing::HasSubstr;

constexpr size_t kChunk = 8192;

std::string Content(uint32_t chunk) {
  return std::string(kChunk, static_cast<char>('a' + chunk % 26));
}

TEST(SpillFileTest, ChunksAreTakenOnceAndKeepWhatIsWritten) {
  const TempDir temp;
  ASSERT_OK_AND_ASSIGN(const auto file,
                       SpillFile::Create(temp.path(), kChunk, 100 * kChunk));
  std::set<uint32_t> taken;
  for (int i = 0; i < 100; ++i) {
    ASSERT_OK_AND_ASSIGN(const uint32_t chunk, file->Take());
    EXPECT_TRUE(taken.insert(chunk).second);
    ASSERT_OK(file->Write(chunk, 0, Content(chunk)));
  }
  EXPECT_EQ(file->bytes_taken(), 100 * kChunk);
  const auto more = file->Take();
  EXPECT_EQ(more.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(more.status().message()), HasSubstr(temp.path()));

  std::string got(100, ' ');
  for (const uint32_t chunk : taken) {
    ASSERT_OK(file->Read(chunk, kChunk - 100, 100, got.data()));
    EXPECT_EQ(got, Content(chunk).substr(0, 100));
    bool there = false;
    ASSERT_OK(file->TryRead(chunk, 10, 100, got.data(), &there));
    if (there) {
      EXPECT_EQ(got, Content(chunk).substr(0, 100));
    }
  }
  file->Give({5, 7});
  EXPECT_EQ(file->bytes_taken(), 98 * kChunk);
  ASSERT_OK_AND_ASSIGN(const uint32_t again, file->Take());
  EXPECT_TRUE(again == 5 || again == 7);
}

TEST(SpillFileTest, TheReserveIsThereWhenAFullDiskIsTold) {
  for (const uint64_t reserve : {0u, 5u, 30u}) {
    SCOPED_TRACE(reserve);
    const TempDir temp;
    ASSERT_OK_AND_ASSIGN(
        const auto file,
        SpillFile::Create(temp.path(), kChunk, 100 * kChunk, reserve * kChunk));
    uint64_t taken = 0;
    for (; file->CheckRoom().ok(); ++taken) ASSERT_OK(file->Take().status());
    uint64_t left = 0;
    while (file->Take().ok()) ++left;
    EXPECT_EQ(taken + left, 100u);
    // The one that found out is of it.
    EXPECT_EQ(left + 1, std::max<uint64_t>(reserve, 1));
  }
}

TEST(SpillFileTest, WhatIsNotThereIsSaid) {
  const TempDir temp;
  const auto nowhere = SpillFile::Create(temp.File("nowhere"), kChunk, 1 << 20);
  EXPECT_FALSE(nowhere.ok());
  EXPECT_THAT(std::string(nowhere.status().message()),
              HasSubstr(temp.File("nowhere")));
  ASSERT_OK_AND_ASSIGN(const auto file,
                       SpillFile::Create(temp.path(), kChunk, 1 << 20));
  char byte = 0;
  EXPECT_EQ(file->Read(1000, 0, 1, &byte).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace syncline::ps
