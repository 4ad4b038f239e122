// Goal: a log is read whole and in order, once, while it grows and is rotated;
// its last lines are found; memory stays bounded whatever is in it. Method:
// files written by hand and by RotatingFile, read in between, with seeds.

#include "common/system/log_file_reader.h"

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/random.h"
#include "common/system/rotating_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class LogFileReaderTest : public ::testing::Test {
 protected:
  void Append(const std::string& path, const std::string& text) {
    std::FILE* const file = std::fopen(path.c_str(), "a");
    ASSERT_NE(file, nullptr);
    std::fwrite(text.data(), 1, text.size(), file);
    std::fclose(file);
  }
  std::unique_ptr<LogFileReader> Open(uint64_t tail_lines = 0) {
    auto reader = LogFileReader::Open(path_, tail_lines);
    EXPECT_TRUE(reader.ok()) << reader.status();
    return reader.ok() ? *std::move(reader) : nullptr;
  }
  static std::string All(LogFileReader* reader) {
    std::string all;
    for (;;) {
      const auto piece = reader->Next();
      EXPECT_TRUE(piece.ok()) << piece.status();
      if (!piece.ok() || piece->empty()) return all;
      EXPECT_LE(piece->size(), LogFileReader::kPieceBytesMax);
      EXPECT_THAT(*piece, EndsWith("\n"));
      all.append(*piece);
    }
  }

  TempDir dir_;
  const std::string path_ = dir_.File("job.log");
};

TEST_F(LogFileReaderTest, ReadsWhatIsThereAndWhatComes) {
  Append(path_, "one\ntwo\nthr");
  const auto reader = Open();
  EXPECT_EQ(All(reader.get()), "one\ntwo\n");
  Append(path_, "ee\nfour\n");
  EXPECT_EQ(All(reader.get()), "three\nfour\n");
  EXPECT_EQ(All(reader.get()), "");
  EXPECT_EQ(reader->TakeTornLine(), "");
}

TEST_F(LogFileReaderTest, AKilledProcessLeavesATornLine) {
  Append(path_, "one\nhalf of a l");
  const auto reader = Open();
  EXPECT_EQ(All(reader.get()), "one\n");
  EXPECT_EQ(reader->TakeTornLine(), "half of a l\n");
  EXPECT_EQ(reader->TakeTornLine(), "");
}

TEST_F(LogFileReaderTest, TheLastLinesOfBothFiles) {
  Append(path_ + ".1", "a\nb\nc\n");
  Append(path_, "d\ne\n");
  EXPECT_EQ(All(Open(0).get()), "a\nb\nc\nd\ne\n");
  EXPECT_EQ(All(Open(1).get()), "e\n");
  EXPECT_EQ(All(Open(3).get()), "c\nd\ne\n");
  EXPECT_EQ(All(Open(5).get()), "a\nb\nc\nd\ne\n");
  EXPECT_EQ(All(Open(99).get()), "a\nb\nc\nd\ne\n");
}

TEST_F(LogFileReaderTest, ATornLineOfTheEarlierFileCountsAsALine) {
  Append(path_ + ".1", "a\nb\nhalf");
  Append(path_, "d\ne\n");
  EXPECT_EQ(All(Open(0).get()), "a\nb\nhalf\nd\ne\n");
  EXPECT_EQ(All(Open(2).get()), "d\ne\n");
  EXPECT_EQ(All(Open(3).get()), "half\nd\ne\n");
  EXPECT_EQ(All(Open(4).get()), "b\nhalf\nd\ne\n");
}

// A line that was cut has no rest in the next file.
TEST_F(LogFileReaderTest, ALongTornLineTakesNoLineWithIt) {
  for (size_t bytes = LogFileReader::kPieceBytesMax - 10;
       bytes <= LogFileReader::kPieceBytesMax + 10; ++bytes) {
    std::remove((path_ + ".1").c_str());
    std::remove(path_.c_str());
    Append(path_ + ".1", std::string(bytes, 'x'));
    Append(path_, "d\ne\n");
    EXPECT_THAT(All(Open().get()), EndsWith("\nd\ne\n")) << bytes;
    EXPECT_EQ(All(Open(2).get()), "d\ne\n") << bytes;
  }
}

TEST_F(LogFileReaderTest, NoFileIsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(LogFileReader::Open(path_, 0).status()));
}

TEST_F(LogFileReaderTest, ALongLineIsCut) {
  Append(path_, absl::StrCat("a\n", std::string(200'000, 'x'), "\nb\n"));
  const auto reader = Open();
  const std::string all = All(reader.get());
  const std::vector<std::string> lines = absl::StrSplit(all, '\n');
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], "a");
  EXPECT_LE(lines[1].size(), LogFileReader::kPieceBytesMax);
  EXPECT_THAT(lines[1], EndsWith("x..."));
  EXPECT_EQ(lines[2], "b");
}

TEST_F(LogFileReaderTest, AReaderThatWasTooLateSaysSo) {
  Append(path_, "one\n");
  const auto reader = Open();
  EXPECT_EQ(All(reader.get()), "one\n");
  std::rename(path_.c_str(), (path_ + ".1").c_str());
  Append(path_, "two\n");
  std::rename(path_.c_str(), (path_ + ".1").c_str());
  Append(path_, "three\n");
  const std::string all = All(reader.get());
  EXPECT_THAT(all, HasSubstr("may be missing here"));
  EXPECT_THAT(all, EndsWith("two\nthree\n"));
}

TEST_F(LogFileReaderTest, AGapAfterATornLineIsALineOfItsOwn) {
  for (const size_t bytes : {size_t{4}, LogFileReader::kPieceBytesMax - 1,
                             LogFileReader::kPieceBytesMax + 5}) {
    std::remove((path_ + ".1").c_str());
    std::remove(path_.c_str());
    Append(path_, absl::StrCat("one\n", std::string(bytes, 'h')));
    const auto reader = Open();
    std::string all = All(reader.get());
    std::rename(path_.c_str(), (path_ + ".1").c_str());
    Append(path_, "two\n");
    std::rename(path_.c_str(), (path_ + ".1").c_str());
    Append(path_, "three\n");
    all += All(reader.get());
    const std::vector<std::string> lines = absl::StrSplit(all, '\n');
    ASSERT_EQ(lines.size(), 6u) << bytes;
    EXPECT_EQ(lines[0], "one");
    EXPECT_THAT(lines[1], testing::StartsWith("hhhh"));
    EXPECT_EQ(lines[2], "msg=\"lines of this log may be missing here\"");
    EXPECT_EQ(lines[3], "two");
  }
}

TEST_F(LogFileReaderTest, NothingIsLostOrRepeatedOverRotations) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    const TempDir dir;
    const std::string path = dir.File("x.log");
    auto file = RotatingFile::Open(path, /*rotate_bytes=*/2000, 2);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->Append("line 0\n").ok());
    auto reader = LogFileReader::Open(path, 0);
    ASSERT_TRUE(reader.ok());
    Random random(seed);
    std::string all;
    std::string expected = "line 0\n";
    size_t unread = 0;
    for (int i = 1; i < 1000; ++i) {
      const std::string line = absl::StrCat("line ", i, "\n");
      ASSERT_TRUE((*file)->Append(line).ok());
      expected.append(line);
      unread += line.size();
      // Within a rotation of the writer.
      if (unread > 1500 || random.Below(20) == 0) {
        all.append(All(reader->get()));
        unread = 0;
      }
    }
    all.append(All(reader->get()));
    EXPECT_EQ(all, expected);
  }
}

}  // namespace
}  // namespace syncline
