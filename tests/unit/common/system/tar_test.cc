// Goal: what is written as an archive of tar is read as such, by our reader and
// by the system's tar; damage is found. Method: files of the sizes around a
// block, long names, sizes beyond eight GiB in a header alone.

#include "common/system/tar.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

struct File {
  std::string name;
  std::string content;
};

std::vector<File> Files() {
  return {{"empty", ""},
          {"db/one", "x"},
          {"db/block", std::string(512, 'b')},
          {"jobs/j-0001/" + std::string(120, 'n'), std::string(513, 'c')},
          {"large", std::string(100'000, 'l')}};
}

std::string Archive() {
  std::string archive;
  for (const File& file : Files()) {
    archive += TarHeader({.name = file.name, .bytes = file.content.size()});
    archive += file.content + TarPadding(file.content.size());
  }
  return archive + TarEnd();
}

class TarTest : public ::testing::Test {
 protected:
  std::unique_ptr<TarReader> Open(const std::string& archive) {
    std::ofstream(dir_.File("a.tar"), std::ios::binary) << archive;
    auto reader = TarReader::Open(dir_.File("a.tar"));
    EXPECT_TRUE(reader.ok()) << reader.status();
    return *std::move(reader);
  }
  const TempDir dir_;
};

TEST_F(TarTest, WhatIsReadIsWhatWasWritten) {
  const auto reader = Open(Archive());
  for (const File& file : Files()) {
    const auto entry = reader->Next();
    ASSERT_TRUE(entry.ok()) << entry.status();
    ASSERT_TRUE(entry->has_value());
    EXPECT_EQ((*entry)->name, file.name);
    EXPECT_EQ((*entry)->bytes, file.content.size());
    std::string content;
    for (;;) {
      const auto part = reader->Read(1000);
      ASSERT_TRUE(part.ok()) << part.status();
      if (part->empty()) break;
      content += *part;
    }
    EXPECT_EQ(content, file.content);
  }
  const auto end = reader->Next();
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_FALSE(end->has_value());
}

TEST_F(TarTest, ContentMayBePassedOver) {
  const auto reader = Open(Archive());
  for (const File& file : Files()) {
    const auto entry = reader->Next();
    ASSERT_TRUE(entry.ok()) << entry.status();
    EXPECT_EQ((*entry)->name, file.name);
    ASSERT_TRUE(reader->Read(10).ok());
  }
}

TEST_F(TarTest, TheSystemsTarUnpacksIt) {
  std::ofstream(dir_.File("a.tar"), std::ios::binary) << Archive();
  ASSERT_TRUE(MakeDirs(dir_.File("out")).ok());
  ASSERT_EQ(std::system(absl::StrCat("tar -xf ", dir_.File("a.tar"), " -C ",
                                     dir_.File("out"))
                            .c_str()),
            0);
  for (const File& file : Files()) {
    const auto content =
        ReadFile(absl::StrCat(dir_.File("out"), "/", file.name), 1 << 20);
    ASSERT_TRUE(content.ok()) << content.status();
    EXPECT_EQ(*content, file.content);
  }
}

TEST_F(TarTest, ASizeBeyondTheOctalDigitsIsKept) {
  const uint64_t bytes = (uint64_t{1} << 40) + 7;
  const auto reader = Open(TarHeader({.name = "huge", .bytes = bytes}));
  const auto entry = reader->Next();
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_EQ((*entry)->bytes, bytes);
}

// An archive with an entry of `type` that the header alone makes up. `size` is
// the field of 12 bytes; empty: 0.
std::string WithEntry(const std::string& name, char type,
                      const std::string& size = "") {
  std::string header = TarHeader({.name = name, .bytes = 0});
  header[156] = type;
  header.replace(124, size.size(), size);
  uint32_t sum = 0;
  for (size_t i = 0; i < 512; ++i) {
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(header[i]);
  }
  header.replace(148, 6, absl::StrFormat("%06o", sum));
  return absl::StrCat(header, Archive());
}

TEST_F(TarTest, LinksAndNamesThatLeadElsewhereAreRefused) {
  for (const auto& [name, type, why] :
       std::vector<std::tuple<std::string, char, std::string>>{
           {"db/x", '2', "\"db/x\" is a symbolic link"},
           {"db/x", '1', "\"db/x\" is a hard link"},
           {"db/x", '6', "is no file and no folder"},
           {"db/x", 'x', "is no file and no folder"},
           {"/etc/passwd", '0', "leads out of the folder"},
           {"..", '5', "leads out of the folder"},
           // A second name of one file.
           {"./db/x", '0', "has a part that is empty or \".\""},
           {"db/./x", '0', "has a part that is empty or \".\""},
           {"db//x", '0', "has a part that is empty or \".\""},
           // GNU's tar makes a folder of it.
           {"db/x/", '0', "has a part that is empty or \".\""},
           {"./", '5', "has a part that is empty or \".\""},
           {"db/../../x", '0', "leads out of the folder"}}) {
    const auto entry = Open(WithEntry(name, type))->Next();
    EXPECT_EQ(entry.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(entry.status().message(), HasSubstr(why));
    EXPECT_THAT(entry.status().message(), HasSubstr("a.tar"));
  }
  // A folder is skipped.
  const auto entry = Open(WithEntry("jobs/", '5'))->Next();
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_EQ((*entry)->name, "empty");
  EXPECT_TRUE(IsPathBelow("a..b/.c/..d"));
  EXPECT_FALSE(IsPathBelow(""));
}

// Where readers differ, one of them finds entries that the other skips.
TEST_F(TarTest, WhatOtherReadersTakeForSomethingElseIsRefused) {
  const auto folder = Open(WithEntry("db/x/", '5', "00000001000"))->Next();
  EXPECT_EQ(folder.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(folder.status().message(), HasSubstr("is a folder with content"));
  for (const std::string& size :
       {std::string("0 000001000"), std::string("00000x01000"),
        std::string("-0000001000"), std::string(11, ' '),
        // 2^64 - 1, and 2^64: with its padding it would be 0.
        std::string("\x80\0\0\0", 4) + std::string(8, '\xff'),
        std::string("\x80\0\0\1", 4) + std::string(8, '\0')}) {
    const auto entry = Open(WithEntry("db/x", '0', size))->Next();
    EXPECT_EQ(entry.status().code(), absl::StatusCode::kDataLoss)
        << absl::CHexEscape(size) << ": " << entry.status();
  }
  // Spaces or zeros may end a number.
  for (const std::string& size :
       {std::string("00000000000 "), "0" + std::string(11, '\0')}) {
    const auto entry = Open(WithEntry("db/x", '0', size))->Next();
    ASSERT_TRUE(entry.ok()) << entry.status();
    EXPECT_EQ((*entry)->bytes, 0u);
  }
}

// A link as the system's tar writes it is refused, too.
TEST_F(TarTest, TheSystemsArchiveOfALinkIsRefused) {
  const std::string folder = dir_.File("in");
  ASSERT_TRUE(MakeDirs(folder).ok());
  std::filesystem::create_symlink("/etc/passwd", folder + "/link");
  for (const char* format : {"gnu", "ustar", "pax"}) {
    ASSERT_EQ(
        std::system(absl::StrCat("tar --format=", format, " -cf ",
                                 dir_.File("a.tar"), " -C ", folder, " link")
                        .c_str()),
        0);
    const auto reader = TarReader::Open(dir_.File("a.tar"));
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ((*reader)->Next().status().code(),
              absl::StatusCode::kFailedPrecondition)
        << format;
  }
}

// Reads to the end, and says how it was.
absl::Status EndOf(TarReader* reader) {
  for (;;) {
    const auto entry = reader->Next();
    if (!entry.ok()) return entry.status();
    if (!entry->has_value()) return absl::OkStatus();
  }
}

TEST_F(TarTest, AnArchiveWithoutItsEndIsNotWhole) {
  const std::string whole = Archive();
  const std::string files = whole.substr(0, whole.size() - TarEnd().size());
  for (const size_t zeros :
       {size_t{0}, size_t{511}, size_t{512}, size_t{1023}}) {
    const absl::Status end =
        EndOf(Open(files + std::string(zeros, '\0')).get());
    EXPECT_EQ(end.code(), absl::StatusCode::kDataLoss) << zeros;
    EXPECT_THAT(end.message(), HasSubstr("cut off")) << zeros;
  }
  const absl::Status within = EndOf(Open(std::string(512, '\0') + whole).get());
  EXPECT_EQ(within.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(within.message(), HasSubstr("its end has two"));
}

TEST_F(TarTest, NothingButZerosMayFollowTheEnd) {
  // tar fills 10 KiB up.
  for (const size_t zeros : {0, 1, 9 << 10, 1 << 17}) {
    EXPECT_TRUE(EndOf(Open(Archive() + std::string(zeros, '\0')).get()).ok())
        << zeros;
  }
  for (const std::string& more :
       {std::string("x"), Archive(), std::string(100'000, '\0') + "x"}) {
    const absl::Status end = EndOf(Open(Archive() + more).get());
    EXPECT_EQ(end.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(end.message(), HasSubstr("something comes after its end"));
    EXPECT_THAT(end.message(), HasSubstr("a.tar"));
  }
}

TEST_F(TarTest, DamageIsFound) {
  const std::string whole = Archive();
  // Cut off within the content of the last file, and within a header.
  for (const size_t bytes : {whole.size() - 2000, size_t{700}}) {
    const auto reader = Open(whole.substr(0, bytes));
    absl::Status status;
    for (int i = 0; i < 10 && status.ok(); ++i)
      status = reader->Next().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("cut off"));
  }
  std::string flipped = whole;
  flipped[3] ^= 1;  // of the first name
  const auto entry = Open(flipped)->Next();
  EXPECT_EQ(entry.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(entry.status().message(), HasSubstr("a.tar"));
  EXPECT_EQ(TarReader::Open(dir_.File("none")).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace syncline
