// Goal: what was written is read, from anywhere; nothing is left in the folder;
// a folder or disk that does not do is named. Method: a temporary folder, a
// file size limit for the full disk, /dev/shm for one in memory.

#include "worker/data/reading/spool_file.h"

#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/data/data_files.h"

namespace syncline::worker {
namespace {

using ::testing::HasSubstr;

class SpoolFileTest : public DataFilesTest {};

TEST_F(SpoolFileTest, WhatWasWrittenIsReadAndNothingIsLeft) {
  auto spool = SpoolFile::Create(dir_);
  ASSERT_TRUE(spool.ok()) << spool.status();
  std::vector<uint32_t> numbers(300'000);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = i * 2654435761u;
  const char* const bytes = reinterpret_cast<const char*>(numbers.data());
  const size_t size = numbers.size() * sizeof(uint32_t);
  ASSERT_TRUE((*spool)->Append(bytes, 1001).ok());
  ASSERT_TRUE((*spool)->Append(bytes + 1001, size - 1001).ok());
  EXPECT_TRUE(std::filesystem::is_empty(dir_)) << "it has no name";
  ASSERT_TRUE((*spool)->Finish().ok());
  ASSERT_EQ((*spool)->size(), size);
  (*spool)->WillRead(5, 100'000);
  EXPECT_EQ(std::memcmp((*spool)->data(), bytes, size), 0);
  (*spool)->HasRead(0, size + 1);
  EXPECT_EQ(std::memcmp((*spool)->data(), bytes, size), 0);
  spool->reset();
  EXPECT_TRUE(std::filesystem::is_empty(dir_));
}

TEST_F(SpoolFileTest, NothingIsAFileToo) {
  auto spool = SpoolFile::Create(dir_);
  ASSERT_TRUE(spool.ok()) << spool.status();
  EXPECT_TRUE((*spool)->Finish().ok());
  EXPECT_EQ((*spool)->size(), 0u);
  (*spool)->WillRead(0, 10);
}

TEST_F(SpoolFileTest, AFolderThatIsNotThereOrInMemoryIsNamed) {
  const absl::Status missing = SpoolFile::Create(Path("missing")).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr(Path("missing")));
  if (!std::filesystem::exists("/dev/shm")) GTEST_SKIP() << "no /dev/shm";
  const absl::Status memory = SpoolFile::Create("/dev/shm").status();
  EXPECT_EQ(memory.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(memory.message()),
              HasSubstr("/dev/shm keeps its files in memory"));
  EXPECT_THAT(std::string(memory.message()), HasSubstr("--work-dir"));
}

TEST_F(SpoolFileTest, AFullDiskIsNamed) {
  auto spool = SpoolFile::Create(dir_);
  ASSERT_TRUE(spool.ok()) << spool.status();
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::vector<char> much(3 << 20);
  const absl::Status full = (*spool)->Append(much.data(), much.size());
  EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_THAT(std::string(full.message()),
              HasSubstr(absl::StrCat("writing a file in ", dir_,
                                     ", which has 1048576 bytes")));
}

}  // namespace
}  // namespace syncline::worker
