// Goal: a file of any size arrives as it was, or not at all. Method: files
// around the chunk size go through reader and writer; then each way in which a
// transfer can go wrong.

#include "common/cluster/file_chunks.h"

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kNoLimit = 1ull << 40;

class FileChunksTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return dir_ / name; }
  bool Exists(const std::string& name) const {
    return std::filesystem::exists(dir_ / name);
  }
  static std::string Content(size_t size) {
    Random random(size);
    std::string content(size, '\0');
    for (char& c : content) c = static_cast<char>(random.Next());
    return content;
  }
  static FileChunk Chunk(uint64_t offset, const std::string& data) {
    FileChunk chunk;
    chunk.set_offset(offset);
    chunk.set_data(data);
    return chunk;
  }
  std::unique_ptr<FileChunkWriter> Writer(uint64_t bytes_max = kNoLimit) {
    auto writer = FileChunkWriter::Create(Path("out.tmp"), bytes_max);
    EXPECT_TRUE(writer.ok()) << writer.status();
    return std::move(writer).value();
  }

  const TempDir temp_;
  const std::filesystem::path dir_ = temp_.path();
};

TEST_F(FileChunksTest, FilesArriveAsTheyWere) {
  for (const size_t size :
       {size_t{0}, size_t{1}, kFileChunkBytesMax - 1, kFileChunkBytesMax,
        kFileChunkBytesMax + 1, 3 * kFileChunkBytesMax + 17}) {
    SCOPED_TRACE(size);
    const std::string content = Content(size);
    ASSERT_TRUE(WriteFileAtomically(Path("in"), content).ok());
    auto reader = FileChunkReader::Open(Path("in"));
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ((*reader)->size_bytes(), size);
    auto writer = Writer();
    for (FileChunk chunk; !chunk.last();) {
      ASSERT_TRUE((*reader)->Next(&chunk).ok());
      ASSERT_TRUE(writer->Append(chunk).ok());
      EXPECT_EQ(writer->whole(), chunk.last());
    }
    const std::string name = absl::StrCat("out-", size);
    EXPECT_FALSE(Exists(name));
    ASSERT_TRUE(writer->Commit(Path(name)).ok());
    EXPECT_EQ(*ReadFile(Path(name), kNoLimit), content);
    EXPECT_FALSE(Exists("out.tmp"));
  }
}

TEST_F(FileChunksTest, AnUnfinishedFileLeavesNothing) {
  {
    auto writer = Writer();
    ASSERT_TRUE(writer->Append(Chunk(0, "half")).ok());
    EXPECT_TRUE(Exists("out.tmp"));
    EXPECT_FALSE(writer->Commit(Path("out")).ok());
  }
  EXPECT_FALSE(Exists("out.tmp"));
  EXPECT_FALSE(Exists("out"));
}

TEST_F(FileChunksTest, ChunksOutOfOrderAreRefused) {
  auto writer = Writer();
  EXPECT_EQ(writer->Append(Chunk(4, "late")).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(writer->Append(Chunk(0, "abcd")).ok());
  EXPECT_THAT(writer->Append(Chunk(0, "abcd")).message(),
              HasSubstr("offset 0, expected 4"));
}

TEST_F(FileChunksTest, NothingComesAfterTheLastChunk) {
  auto writer = Writer();
  FileChunk last = Chunk(0, "");
  last.set_last(true);
  ASSERT_TRUE(writer->Append(last).ok());
  EXPECT_EQ(writer->Append(Chunk(0, "more")).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(FileChunksTest, AFlippedBitIsDataLoss) {
  auto writer = Writer();
  FileChunk chunk = Chunk(0, "content");
  chunk.set_last(true);
  chunk.set_crc32c(1);
  EXPECT_EQ(writer->Append(chunk).code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(writer->whole());
}

// Not only when all of a large file is on disk.
TEST_F(FileChunksTest, AFlippedBitIsNoticedInItsChunk) {
  auto writer = Writer();
  FileChunk first = Chunk(0, "first");
  first.set_crc32c(Crc32c("first"));
  ASSERT_TRUE(writer->Append(first).ok());
  ASSERT_TRUE(writer->Append(Chunk(5, "second")).ok());  // says none
  FileChunk third = Chunk(11, "third");
  third.set_crc32c(Crc32c("firstsecondthirD"));
  EXPECT_EQ(writer->Append(third).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(writer->size_bytes(), 11);  // nothing of it was written
  third.set_crc32c(Crc32c("firstsecondthird"));
  EXPECT_TRUE(writer->Append(third).ok());
}

TEST_F(FileChunksTest, LimitsAreKept) {
  auto writer = Writer(/*bytes_max=*/10);
  ASSERT_TRUE(writer->Append(Chunk(0, "0123456789")).ok());
  EXPECT_EQ(writer->Append(Chunk(10, "x")).code(),
            absl::StatusCode::kResourceExhausted);
  auto other = Writer();
  EXPECT_EQ(
      other->Append(Chunk(0, std::string(kFileChunkBytesMax + 1, 'x'))).code(),
      absl::StatusCode::kInvalidArgument);
}

TEST_F(FileChunksTest, AFileIsAsLongAsWasDeclared) {
  constexpr uint64_t kLimit = 10;
  const auto writer = [&](uint64_t declared) {
    return FileChunkWriter::Create(Path("out.tmp"), kLimit, declared);
  };
  const absl::Status large = writer(11).status();
  EXPECT_EQ(large.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(large.message(),
            "file of 11 bytes is larger than the limit of 10 bytes");
  EXPECT_FALSE(Exists("out.tmp"));

  FileChunk last = Chunk(3, "def");
  last.set_last(true);
  last.set_crc32c(Crc32c("abcdef"));
  for (const uint64_t declared : {2, 5, 6, 7, 10}) {
    SCOPED_TRACE(declared);
    auto file = writer(declared);
    ASSERT_TRUE(file.ok()) << file.status();
    absl::Status status = (*file)->Append(Chunk(0, "abc"));
    if (status.ok()) status = (*file)->Append(last);
    EXPECT_EQ((*file)->whole(), declared == 6);
    if (declared == 6) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              declared < 6 ? absl::StrCat("file goes on after the ", declared,
                                          " bytes that were declared")
                           : absl::StrCat("file ends after 6 bytes, but ",
                                          declared, " were declared"));
  }
}

TEST_F(FileChunksTest, AFileThatShrinksIsDataLoss) {
  ASSERT_TRUE(WriteFileAtomically(Path("in"), Content(3 << 20)).ok());
  auto reader = FileChunkReader::Open(Path("in"));
  ASSERT_TRUE(reader.ok());
  FileChunk chunk;
  ASSERT_TRUE((*reader)->Next(&chunk).ok());
  std::filesystem::resize_file(Path("in"), 1 << 20);
  absl::Status status;
  for (int i = 0; i < 3 && status.ok(); ++i) status = (*reader)->Next(&chunk);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
}

TEST_F(FileChunksTest, WhatIsNotAFileIsRefusedByName) {
  const auto missing = FileChunkReader::Open(Path("missing"));
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr("missing"));
  EXPECT_FALSE(FileChunkReader::Open(dir_).ok());
  // Nobody writes to it: opening it as a file would never end.
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  const auto pipe = FileChunkReader::Open(Path("pipe"));
  EXPECT_THAT(pipe.status().message(), HasSubstr("not a regular file"));
  EXPECT_FALSE(FileChunkWriter::Create(Path("no/such/dir"), kNoLimit).ok());
}

}  // namespace
}  // namespace syncline
