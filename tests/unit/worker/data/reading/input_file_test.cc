// Goal: a pattern finds what it names, the content comes out whole whatever the
// compression and the size of the reads, and damage is reported with the path.
// Method: small files in a directory per test.

#include "worker/data/reading/input_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_replace.h"
#include "common/base/random.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/data/data_files.h"

namespace syncline::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class InputFileTest : public DataFilesTest {};

absl::StatusOr<std::string> ReadAll(const std::string& path, size_t piece) {
  auto file = InputFile::Open(path);
  if (!file.ok()) return file.status();
  EXPECT_EQ((*file)->path(), path);
  std::string all;
  std::string buffer(piece, '\0');
  while (true) {
    const auto got = (*file)->Read(buffer.data(), piece);
    if (!got.ok()) return got.status();
    all.append(buffer, 0, *got);
    if (*got < piece) break;
  }
  EXPECT_LE(all.size(), (*file)->size_bound());
  EXPECT_EQ(*(*file)->Read(buffer.data(), piece), 0u);
  return all;
}

std::string Noise(size_t bytes) {
  Random random(1);
  std::string out(bytes, '\0');
  for (char& c : out) c = static_cast<char>(random.Below(7));
  return out;
}

TEST_F(InputFileTest, FindsFilesBelowTheDataRootAndByAbsolutePath) {
  Write("a.csv", "1");
  EXPECT_THAT(*FindFiles("a.csv", dir_), ElementsAre(Path("a.csv")));
  EXPECT_THAT(*FindFiles("./x/../a.csv", dir_), ElementsAre(Path("a.csv")));
  EXPECT_THAT(*FindFiles(Path("a.csv"), "/nowhere"),
              ElementsAre(Path("a.csv")));
}

TEST_F(InputFileTest, FindsMatchesOfAGlobInByteOrder) {
  for (const char* name : {"p-10", "p-9", "p-B", "p-a", "q-1"}) Write(name, "");
  EXPECT_THAT(*FindFiles("p-*", dir_),
              ElementsAre(Path("p-10"), Path("p-9"), Path("p-B"), Path("p-a")));
  EXPECT_THAT(*FindFiles("p-[0-9]", dir_), ElementsAre(Path("p-9")));
}

TEST_F(InputFileTest, AFileWhoseNameLooksLikeAGlobIsFound) {
  Write("p-[1]", "");
  Write("p-1", "");
  EXPECT_THAT(*FindFiles("p-[1]", dir_), ElementsAre(Path("p-[1]")));
}

TEST_F(InputFileTest, NamesThePathAndTheDataRootOfWhatItCannotFind) {
  const absl::Status missing = FindFiles("x/absent.csv", dir_).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()),
              AllOf(HasSubstr(Path("x/absent.csv")),
                    HasSubstr("data_root \"" + dir_ + "\"")));
  const absl::Status unmatched = FindFiles("*.csv", dir_).status();
  EXPECT_EQ(unmatched.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unmatched.message()), HasSubstr(Path("*.csv")));
  for (const absl::string_view bad :
       {absl::string_view(""), absl::string_view("a\0b", 3)}) {
    EXPECT_EQ(FindFiles(bad, dir_).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(InputFileTest, AnEmptyDataRootIsTheWorkingDirectory) {
  const std::string here = std::filesystem::current_path();
  const absl::Status status = FindFiles("absent.csv", "").status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("\"" + here + "/absent.csv\""),
                    HasSubstr("data_root \"" + here)));
}

TEST_F(InputFileTest, NothingIsFoundOutsideABoundary) {
  const DataRoot root(Path("root"), /*bounded=*/true);
  ASSERT_TRUE(MakeDirs(Path("root/part")).ok());
  Write("secret.csv", "1");
  Write("root/part/a.csv", "1");
  EXPECT_THAT(*FindFiles("part/a.csv", root),
              ElementsAre(Path("root/part/a.csv")));
  EXPECT_THAT(*FindFiles(Path("root/part/*.csv"), root),
              ElementsAre(Path("root/part/a.csv")));
  EXPECT_THAT(*FindFiles("x/../../root/part/a.csv", root),
              ElementsAre(Path("root/part/a.csv")));
  const std::string said = "leads outside --data-root";
  for (const std::string& outside :
       {std::string("../secret.csv"), std::string("part/../../secret.csv"),
        std::string("../*.csv"), std::string("*/../../secret.csv"),
        Path("secret.csv"), Path("root-2/a.csv"), Path("absent.csv"),
        std::string("/etc/passwd"), std::string("..")}) {
    const absl::Status status = FindFiles(outside, root).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << outside;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("\"" + outside + "\""), HasSubstr(said)));
  }
  // The same where there is no boundary.
  EXPECT_THAT(*FindFiles("../secret.csv", Path("root")),
              ElementsAre(Path("secret.csv")));
}

TEST_F(InputFileTest, LinksDoNotLeadOverABoundary) {
  const DataRoot root(Path("link-to-root"), /*bounded=*/true);
  ASSERT_TRUE(MakeDirs(Path("root")).ok());
  ASSERT_EQ(symlink(Path("root").c_str(), Path("link-to-root").c_str()), 0);
  Write("secret.csv", "1");
  Write("root/a.csv", "1");
  ASSERT_EQ(symlink("a.csv", Path("root/inside.csv").c_str()), 0);
  ASSERT_EQ(symlink("../secret.csv", Path("root/outside.csv").c_str()), 0);
  ASSERT_EQ(symlink("..", Path("root/up").c_str()), 0);
  EXPECT_TRUE(FindFiles("inside.csv", root).ok());
  // The root's own name may be either.
  EXPECT_TRUE(FindFiles(Path("root/a.csv"), root).ok());
  EXPECT_TRUE(FindFiles(Path("link-to-root/a.csv"), root).ok());
  for (const char* outside : {"outside.csv", "up/secret.csv", "*.csv"}) {
    EXPECT_THAT(std::string(FindFiles(outside, root).status().message()),
                HasSubstr("leads outside --data-root"))
        << outside;
  }
}

TEST_F(InputFileTest, WhatIsOutsideABoundaryCannotBeFoundOutByLinks) {
  const DataRoot root(Path("root"), /*bounded=*/true);
  ASSERT_TRUE(MakeDirs(Path("root")).ok());
  Write("secret.csv", "1");
  ASSERT_EQ(symlink("..", Path("root/up").c_str()), 0);
  const auto answer = [&](const std::string& asked) {
    const absl::Status status = FindFiles(asked, root).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << asked;
    // The same but for the name that was asked for.
    return absl::StrReplaceAll(std::string(status.message()), {{asked, "X"}});
  };
  const std::string there = answer("up/secret.csv");
  EXPECT_THAT(there, HasSubstr("\"X\" leads outside --data-root"));
  for (const char* asked : {"up/absent.csv", "up/absent/b.csv", "up/s*.csv",
                            "up/no*.csv", "up/*/*", "u?/no.csv"}) {
    EXPECT_EQ(answer(asked), there);
  }
  // Neither by where a link of the root's leads.
  for (const char* target :
       {"../secret.csv", "../absent.csv", "/absent/b", "../absent/../b"}) {
    ASSERT_EQ(symlink(target, Path("root/link").c_str()), 0);
    EXPECT_EQ(answer("link"), there) << target;
    ASSERT_EQ(unlink(Path("root/link").c_str()), 0);
  }
}

TEST_F(InputFileTest, ALinkThatChangesAfterItWasFoundLeadsNowhereElse) {
  const DataRoot root(Path("root"), /*bounded=*/true);
  ASSERT_TRUE(MakeDirs(Path("root/part")).ok());
  ASSERT_TRUE(MakeDirs(Path("other")).ok());
  Write("root/part/a.csv", "inside");
  Write("other/a.csv", "secret");
  const auto found = FindFiles("part/a.csv", root);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(InputFile::Open(found->at(0)).ok());
  ASSERT_TRUE(RemoveTree(Path("root/part")).ok());
  ASSERT_EQ(symlink("../other", Path("root/part").c_str()), 0);
  const absl::Status status = InputFile::Open(found->at(0)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("leads outside --data-root"));
}

TEST_F(InputFileTest, RefusesWhatIsNotARegularFile) {
  ASSERT_EQ(mkdir(Path("folder").c_str(), 0755), 0);
  const absl::Status folder = FindFiles("folder", dir_).status();
  EXPECT_EQ(folder.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(folder.message()),
              AllOf(HasSubstr(Path("folder")), HasSubstr("directory")));
  // Opening it would block for ever.
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0644), 0);
  EXPECT_THAT(std::string(FindFiles("pipe", dir_).status().message()),
              HasSubstr("not a regular file"));
  EXPECT_EQ(InputFile::Open(Path("pipe")).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(InputFileTest, NamesAFileItMayNotRead) {
  Write("secret", "1");
  ASSERT_EQ(chmod(Path("secret").c_str(), 0), 0);
  // Root may read everything, so it steps down for the test.
  const bool is_root = geteuid() == 0;
  ASSERT_TRUE(!is_root || seteuid(65534) == 0);
  const absl::Status status = FindFiles("secret", dir_).status();
  ASSERT_TRUE(!is_root || seteuid(0) == 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()), HasSubstr(Path("secret")));
}

TEST_F(InputFileTest, ReadsPlainAndGzipWhateverTheSizeOfTheReads) {
  const std::string content = Noise(300'000);
  Write("plain", content);
  Write("packed", Gzip(content));  // recognised without a suffix
  for (const size_t piece : {1u, 777u, 1u << 20}) {
    EXPECT_EQ(*ReadAll(Path("plain"), piece), content);
    EXPECT_EQ(*ReadAll(Path("packed"), piece), content);
  }
}

TEST_F(InputFileTest, ReadsEmptyContent) {
  Write("plain", "");
  Write("packed", Gzip(""));
  EXPECT_EQ(*ReadAll(Path("plain"), 10), "");
  EXPECT_EQ(*ReadAll(Path("packed"), 10), "");
}

TEST_F(InputFileTest, ReadsAllMembersOfAGzipFile) {
  Write("packed", Gzip("first ") + Gzip("") + Gzip("second"));
  EXPECT_EQ(*ReadAll(Path("packed"), 100), "first second");
}

TEST_F(InputFileTest, ReportsATruncatedGzipFileWhereverItEnds) {
  const std::string packed = Gzip(Noise(5000));
  for (size_t size = 2; size < packed.size(); ++size) {
    Write("packed", packed.substr(0, size));
    const absl::Status status = ReadAll(Path("packed"), 1 << 20).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << size;
    ASSERT_THAT(std::string(status.message()),
                AllOf(HasSubstr(Path("packed")), HasSubstr("truncated")));
  }
}

TEST_F(InputFileTest, ReportsABadChecksum) {
  std::string packed = Gzip(Noise(5000));
  packed[packed.size() - 8] ^= 1;  // the CRC is followed by the length
  Write("packed", packed);
  const absl::Status status = ReadAll(Path("packed"), 1 << 20).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(Path("packed")), HasSubstr("data check")));
}

TEST_F(InputFileTest, ReportsBytesAfterTheGzipData) {
  Write("packed", Gzip("content") + "more");
  EXPECT_THAT(std::string(ReadAll(Path("packed"), 100).status().message()),
              HasSubstr("bytes after the end of the gzip data"));
}

}  // namespace
}  // namespace syncline::worker
