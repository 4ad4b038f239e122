// Goal: a file has what was appended, or is gone; what is read is what the
// manifest says, or an error names the path.
// Method: files in a folder of the test's own, /dev/full, and damage.

#include "common/checkpoint/state_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "common/checkpoint/manifest.h"
#include "common/system/disk_thread.h"
#include "common/system/file.h"
#include "common/system/file_descriptor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kBytes = 9'000'001;  // more than two buffers

std::string Bulk() {
  std::string bulk;
  for (size_t i = 0; i < kBytes; ++i) {
    bulk.push_back(static_cast<char>(i * 7 >> 4));
  }
  return bulk;
}

// Reads in steps of `step` bytes.
absl::StatusOr<std::string> ReadAll(StateFileSource* source, size_t step) {
  std::string all;
  std::string some(step, '\0');
  while (true) {
    const auto got = source->Read(step, some.data());
    if (!got.ok()) return got.status();
    all.append(some, 0, *got);
    if (*got < step) return all;
  }
}

TEST(StateFileTest, WhatIsAppendedIsRead) {
  const TempDir dir;
  DiskThread disk("disk");
  const std::string path = dir.File("state");
  auto sink = StateFileSink::Create(path, nullptr, &disk);
  ASSERT_OK(sink.status());
  const std::string bulk = Bulk();
  ASSERT_OK((*sink)->Append("head", bulk));
  ASSERT_OK((*sink)->Append("", "tail"));
  ASSERT_OK((*sink)->Finish());
  const std::string all = "head" + bulk + "tail";
  EXPECT_EQ((*sink)->bytes(), all.size());
  EXPECT_EQ((*sink)->crc32c(), Crc32c(all));
  sink->reset();
  for (const size_t step : {size_t{1000}, kBytes / 2, 2 * kBytes}) {
    auto source = StateFileSource::Open(path, all.size(), Crc32c(all));
    ASSERT_OK(source.status());
    EXPECT_EQ((*source)->name(), path);
    const auto read = ReadAll(source->get(), step);
    ASSERT_OK(read.status());
    EXPECT_TRUE(*read == all);
    EXPECT_OK((*source)->CheckWhole(Crc32c(all)));
  }
}

TEST(StateFileTest, AFileThatAnotherCheckpointNeedsIsNotWrittenOver) {
  const TempDir dir;
  DiskThread disk("disk");
  const std::string path = dir.Write("a.state", "old");
  const std::string link = OlderStateFile(path, 0xbeef);
  EXPECT_EQ(link, dir.File("a.000000000000beef.state"));
  std::filesystem::create_hard_link(path, link);
  auto sink = StateFileSink::Create(path, nullptr, &disk);
  ASSERT_OK(sink.status());
  ASSERT_OK((*sink)->Append("new one", ""));
  ASSERT_OK((*sink)->Finish());
  auto source = StateFileSource::Open(path, 7, 0);
  ASSERT_OK(source.status());
  // It is found beside the file that needs it.
  const auto older = (*source)->OpenOlder(0xbeef, 3, Crc32c("old"));
  ASSERT_OK(older.status());
  char read[4] = {};
  EXPECT_EQ(*(*older)->Read(3, read), 3u);
  EXPECT_STREQ(read, "old");
  EXPECT_EQ((*source)->OpenOlder(0xbeef, 4, 0).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ((*source)->OpenOlder(1, 3, 0).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(StateFileTest, WhatIsPassedOverIsNotReadAndTheRestIs) {
  const TempDir dir;
  const std::string all = Bulk();
  const std::string path = dir.Write("state", all);
  Random random(1);
  for (int round = 0; round < 20; ++round) {
    auto source = StateFileSource::Open(path, all.size(), Crc32c(all));
    ASSERT_OK(source.status());
    std::string some;
    for (size_t at = 0; at < all.size();) {
      // Frames and metas, records, and many of them.
      const size_t sizes[] = {24, 60, 20'000, 1'000'000};
      const size_t bytes = 1 + random.Below(sizes[random.Below(4)]);
      const size_t left = std::min(bytes, all.size() - at);
      if (random.Below(2) == 0) {
        const auto passed = (*source)->Skip(bytes);
        ASSERT_OK(passed.status());
        ASSERT_EQ(*passed, left);
      } else {
        some.resize(bytes);
        const auto read = (*source)->Read(bytes, some.data());
        ASSERT_OK(read.status());
        ASSERT_EQ(*read, left);
        ASSERT_TRUE(all.compare(at, left, some, 0, left) == 0);
      }
      at += left;
    }
    EXPECT_EQ(*(*source)->Skip(1), 0u);
    EXPECT_EQ(*(*source)->Read(1, some.data()), 0u);
  }
}

// Bytes that are passed over count: they say how far the reading is.
TEST(StateFileTest, WhoSaysStopIsAskedEveryFewMebibytes) {
  const TempDir dir;
  const std::string all = Bulk();
  int asked = 0;
  auto source = StateFileSource::Open(dir.Write("state", all), all.size(),
                                      Crc32c(all), [&] {
                                        ++asked;
                                        return absl::OkStatus();
                                      });
  ASSERT_OK(source.status());
  std::string some(100, '\0');
  for (size_t at = 0; at + 100'000 < all.size(); at += 100'000) {
    ASSERT_OK((*source)->Read(100, some.data()).status());
    ASSERT_OK((*source)->Skip(99'900).status());
  }
  EXPECT_EQ(asked, 3);
}

TEST(StateFileTest, OneThatWasNotFinishedIsGone) {
  const TempDir dir;
  DiskThread disk("disk");
  const std::string path = dir.File("state");
  {
    auto sink = StateFileSink::Create(path, nullptr, &disk);
    ASSERT_OK(sink.status());
    ASSERT_OK((*sink)->Append("a", Bulk()));
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(StateFileTest, AFullDiskIsExhausted) {
  const TempDir dir;
  DiskThread disk("disk");
  const std::string path = dir.File("state");
  std::filesystem::create_symlink("/dev/full", path);
  auto sink = StateFileSink::Create(path, nullptr, &disk);
  ASSERT_OK(sink.status());
  absl::Status status = (*sink)->Append("", Bulk());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
}

TEST(StateFileTest, AFolderThatIsNotThereIsUnavailable) {
  const TempDir dir;
  DiskThread disk("disk");
  EXPECT_EQ(StateFileSink::Create(dir.File("none/state"), nullptr, &disk)
                .status()
                .code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(StateFileSource::Open(dir.File("none"), 1, 1).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(StateFileTest, WhoSaysStopIsHeard) {
  const TempDir dir;
  DiskThread disk("disk");
  int asked = 0;
  auto sink = StateFileSink::Create(
      dir.File("state"),
      [&] {
        return ++asked < 2 ? absl::OkStatus() : absl::CancelledError("stop");
      },
      &disk);
  ASSERT_OK(sink.status());
  EXPECT_EQ((*sink)->Append("", Bulk()), absl::CancelledError("stop"));
}

// A pipe that nobody reads takes less than a piece.
TEST(StateFileTest, ADiskThatHangsIsNamed) {
  const TempDir dir;
  DiskThread disk("disk");
  const std::string path = dir.File("state");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const FileDescriptor reader(
      open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(reader.valid());
  absl::Status go_on;
  std::thread drain;
  {
    auto sink = StateFileSink::Create(
        path, [&] { return go_on; }, &disk);
    ASSERT_OK(sink.status());
    (*sink)->SetPieceWaitMax(absl::Milliseconds(200));
    const absl::Status hangs = (*sink)->Append("", Bulk());
    EXPECT_EQ(hangs.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(hangs.message()),
                AllOf(HasSubstr(path), HasSubstr("the disk hangs"),
                      HasSubstr("200ms")));
    go_on = absl::CancelledError("stop");
    EXPECT_EQ((*sink)->Finish(), go_on) << "at once, though the disk hangs";
    // It goes on, so that the file can be ended.
    drain = std::thread([&] {
      std::string some(1 << 16, '\0');
      while (true) {
        const ssize_t got = read(reader.get(), some.data(), some.size());
        if (got == 0) break;
        if (got < 0) absl::SleepFor(absl::Milliseconds(1));
      }
    });
  }
  drain.join();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(StateFileTest, ADiskThatHangsIsLeft) {
  const TempDir dir;
  const std::string path = dir.File("state");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const FileDescriptor reader(
      open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(reader.valid());
  {
    DiskThread disk("disk");
    auto sink = StateFileSink::Create(path, nullptr, &disk);
    ASSERT_OK(sink.status());
    const absl::Status why = absl::CancelledError("the job has ended");
    disk.LeaveAt(MonotonicNow() + absl::Milliseconds(50), why);
    EXPECT_EQ((*sink)->Append("", Bulk()), why);
    EXPECT_EQ((*sink)->Finish(), why);
    EXPECT_TRUE(disk.is_busy());
  }
  EXPECT_TRUE(std::filesystem::exists(path));
  // The disk goes on: what was begun is written, and the file is removed.
  std::string some(1 << 16, '\0');
  EXPECT_TRUE(Eventually(absl::Seconds(30), [&] {
    while (read(reader.get(), some.data(), some.size()) > 0) continue;
    return !std::filesystem::exists(path);
  }));
}

TEST(StateFileTest, AFileOfADiskThatIsWatchedIsTheSame) {
  const TempDir dir;
  const std::string all = Bulk();
  const std::string path = dir.Write("state", all);
  for (const size_t piece : {size_t{100}, size_t{4096}, size_t{9 << 20}}) {
    auto source = StateFileSource::OpenWatched(path, all.size(), Crc32c(all),
                                               nullptr, absl::Minutes(1));
    ASSERT_OK(source.status());
    const auto read = ReadAll(source->get(), piece);
    ASSERT_OK(read.status());
    EXPECT_TRUE(*read == all) << piece;
    EXPECT_OK((*source)->CheckWhole(Crc32c(all)));
  }
  EXPECT_EQ(StateFileSource::OpenWatched(path, all.size() - 1, 0, nullptr,
                                         absl::Minutes(1))
                .status()
                .code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(StateFileSource::OpenWatched(dir.File("none"), 1, 0, nullptr,
                                         absl::Minutes(1))
                .status()
                .code(),
            absl::StatusCode::kNotFound);
}

TEST(StateFileTest, ACallThatHangsIsLeft) {
  const auto goes_on = std::make_shared<absl::Notification>();
  const auto hang = [goes_on] {
    goes_on->WaitForNotification();
    return absl::OkStatus();
  };
  const auto what = [] { return std::string("the disk hangs"); };
  DiskThread first("disk");
  first.Begin(hang);
  EXPECT_EQ(AwaitDisk(&first, nullptr, absl::Milliseconds(20), what),
            absl::UnavailableError("the disk hangs"));
  // Whoever is told to stop stops before that.
  DiskThread second("disk");
  second.Begin(hang);
  int asked = 0;
  const auto stop = [&] {
    return ++asked < 3 ? absl::OkStatus() : absl::CancelledError("stop");
  };
  EXPECT_EQ(AwaitDisk(&second, stop, absl::Hours(1), what),
            absl::CancelledError("stop"));
  goes_on->Notify();
  EXPECT_OK(AwaitDisk(&second, nullptr, absl::Minutes(1), what));
}

// A folder with many files may take longer than one call of its disk may.
TEST(StateFileTest, ACallThatMakesManyIsAwaitedWhileItMakesThem) {
  const auto calls = std::make_shared<DiskCalls>();
  const auto goes_on = std::make_shared<absl::Notification>();
  const auto hangs = std::make_shared<absl::Notification>();
  const absl::Duration wait_max = absl::Milliseconds(500);
  const auto what = [] { return std::string("the disk hangs"); };
  DiskThread disk("disk");
  disk.Begin([calls, goes_on] {
    do {
      calls->Add();
    } while (!goes_on->WaitForNotificationWithTimeout(absl::Milliseconds(1)));
    return absl::OkStatus();
  });
  const absl::Time over = MonotonicNow() + 2 * wait_max;
  const auto go_on = [&] {
    if (MonotonicNow() >= over && !goes_on->HasBeenNotified()) {
      goes_on->Notify();
    }
    return absl::OkStatus();
  };
  EXPECT_OK(AwaitDisk(&disk, go_on, wait_max, what, calls.get()));
  EXPECT_TRUE(goes_on->HasBeenNotified());
  // Those that were made before count for nothing.
  disk.Begin([hangs] {
    hangs->WaitForNotification();
    return absl::OkStatus();
  });
  EXPECT_EQ(
      AwaitDisk(&disk, nullptr, absl::Milliseconds(10), what, calls.get()),
      absl::UnavailableError("the disk hangs"));
  hangs->Notify();
}

TEST(StateFileTest, AReaderThatIsToldToStopStops) {
  const TempDir dir;
  const std::string all = Bulk();
  int asked = 0;
  auto source = StateFileSource::Open(
      dir.Write("state", all), all.size(), Crc32c(all), [&] {
        return ++asked < 2 ? absl::OkStatus() : absl::CancelledError("stop");
      });
  ASSERT_OK(source.status());
  EXPECT_EQ(ReadAll(source->get(), 4096).status(),
            absl::CancelledError("stop"));
}

// However often whoever reads is asked whether it goes on.
TEST(StateFileTest, BytesThatAreReadAreCounted) {
  const TempDir dir;
  const std::string all = Bulk();
  uint64_t read = 0;
  int asked = 0;
  auto source = StateFileSource::OpenWatched(
      dir.Write("state", all), all.size(), Crc32c(all),
      [&] {
        ++asked;
        return absl::OkStatus();
      },
      absl::Minutes(1));
  ASSERT_OK(source.status());
  (*source)->CountIn(&read);
  ASSERT_OK(ReadAll(source->get(), 4096).status());
  EXPECT_EQ(read, kBytes);
  EXPECT_GT(asked, 100);
}

TEST(StateFileTest, AnotherSizeOrChecksumIsDamage) {
  const TempDir dir;
  const std::string all = Bulk();
  const std::string path = dir.Write("state", all);
  const uint32_t checksum = Crc32c(all);
  EXPECT_EQ(StateFileSource::Open(path, kBytes - 1, checksum).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(StateFileSource::Open(dir.path(), 1, 1).status().code(),
            absl::StatusCode::kDataLoss);
  auto source = StateFileSource::Open(path, kBytes, checksum + 1);
  ASSERT_OK(source.status());
  const absl::Status other = (*source)->CheckWhole(checksum);
  EXPECT_EQ(other.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(other.message()), HasSubstr(path));
}

TEST(StateFileTest, OneThatIsCutOffWhileItIsReadHasFewerBytes) {
  const TempDir dir;
  const std::string all = Bulk();
  const std::string path = dir.Write("state", all);
  auto source = StateFileSource::Open(path, kBytes, Crc32c(all));
  ASSERT_OK(source.status());
  std::filesystem::resize_file(path, kBytes / 2);
  const auto read = ReadAll(source->get(), 4096);
  ASSERT_OK(read.status());
  EXPECT_EQ(read->size(), kBytes / 2);
}

}  // namespace
}  // namespace syncline
