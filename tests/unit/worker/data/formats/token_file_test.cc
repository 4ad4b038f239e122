// Goal: tokens are read as each format has them, and what is none is named with
// its file and offset. Method: small files of each format, whole, in part, and
// broken in each way.

#include "worker/data/formats/token_file.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/data/data_files.h"
#include "tests/unit/worker/data/npy_files.h"

namespace syncline::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kByName = TokenSource::FORMAT_UNSPECIFIED;

std::vector<int64_t> All(const TokenFile& file) {
  std::vector<int64_t> tokens(file.size());
  file.Copy(0, file.size(), tokens.data());
  return tokens;
}

class TokenFileTest : public DataFilesTest {
 protected:
  absl::StatusOr<TokenFile> Load(const std::string& name,
                                 const std::string& content,
                                 TokenSource::Format format = kByName,
                                 double begin = 0, double end = 1) {
    return TokenFile::Load(Write(name, content), format, begin, end);
  }
  std::string Error(const std::string& name, const std::string& content,
                    TokenSource::Format format = kByName) {
    const auto file = Load(name, content, format);
    return file.ok() ? "OK" : std::string(file.status().message());
  }
};

TEST_F(TokenFileTest, EveryFormat) {
  EXPECT_THAT(All(*Load("a.txt", "Az\xff")), ElementsAre(65, 122, 255));
  EXPECT_THAT(All(*Load("a.bin", Bytes<uint16_t>({1, 65535}))),
              ElementsAre(1, 65535));
  EXPECT_THAT(All(*Load("b.bin", Bytes<uint32_t>({1, 4000000000}),
                        TokenSource::UINT32)),
              ElementsAre(1, 4000000000));
  EXPECT_THAT(All(*Load("c.bin.gz", Gzip(Bytes<uint16_t>({7, 8})))),
              ElementsAre(7, 8));
  // Ids whose bytes are those of a gzip file.
  EXPECT_THAT(All(*Load("d.bin", Bytes<uint16_t>({0x8b1f, 8}))),
              ElementsAre(0x8b1f, 8));
  EXPECT_THAT(All(*Load("u2.npy", Npy(NpyText("<u2", "(2,)"),
                                      Bytes<uint16_t>({3, 60000})))),
              ElementsAre(3, 60000));
  EXPECT_THAT(All(*Load("u1.npy", Npy(NpyText("|u1", "(2,)"), "\x01\xfe"))),
              ElementsAre(1, 254));
  EXPECT_THAT(All(*Load("i4.npy", Npy(NpyText("<i4", "(2,)"),
                                      Bytes<int32_t>({3, 70000})))),
              ElementsAre(3, 70000));
  EXPECT_THAT(All(*Load("i8.npy", Npy(NpyText("<i8", "(1,)"),
                                      Bytes<int64_t>({4000000000})))),
              ElementsAre(4000000000));
}

TEST_F(TokenFileTest, PartsOfAFileMeetWithoutOverlap) {
  const std::string text = "0123456789";
  const auto front = Load("a.txt", text, kByName, 0, 0.75);
  const auto back = Load("a.txt", text, kByName, 0.75, 1);
  EXPECT_EQ(front->size(), 7);
  EXPECT_EQ(back->size(), 3);
  EXPECT_EQ(back->at(0), '7');
  EXPECT_THAT(back->Where(1), HasSubstr("a.txt: token 8 at byte 8"));
}

TEST_F(TokenFileTest, WhereCountsHeaderAndWidth) {
  const std::string header = NpyText("<i8", "(3,)");
  const auto file =
      Load("a.npy", Npy(header, Bytes<int64_t>({1, 2, 3})), kByName, 0.34, 1);
  EXPECT_THAT(file->Where(0), HasSubstr(absl::StrCat("token 1 at byte ",
                                                     10 + header.size() + 8)));
}

TEST_F(TokenFileTest, WhatIsNotBelowTheVocabularyIsFound) {
  const auto file = Load("a.bin", Bytes<uint16_t>({1, 5, 9, 5}));
  EXPECT_EQ(file->FindAtLeast(10), -1);
  EXPECT_EQ(file->FindAtLeast(9), 2);
}

TEST_F(TokenFileTest, ThirtyTwoBitsAreNotTakenForSixteen) {
  std::vector<uint32_t> tokens;
  for (uint32_t i = 0; i < 64; ++i) tokens.push_back(70'000 + 900 * i);
  const std::string bytes = Bytes<uint32_t>(tokens);
  EXPECT_THAT(Error("a.bin", bytes),
              AllOf(HasSubstr("every second one is below 256"),
                    HasSubstr("tokens.format: UINT32")));
  const auto said = Load("a.bin", bytes, TokenSource::UINT16);
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_EQ(said->size(), 128);
  tokens.resize(63);
  EXPECT_EQ(Load("a.bin", Bytes<uint32_t>(tokens))->size(), 126) << "too few";
  // Characters, of which all are small.
  const std::vector<uint16_t> small(1000, 65);
  EXPECT_EQ(Load("a.bin", Bytes<uint16_t>(small))->size(), 1000);
}

TEST_F(TokenFileTest, WhatIsBrokenIsNamed) {
  EXPECT_THAT(Error("a.bin", "abc"),
              HasSubstr("a.bin: byte 2: bytes that are no whole token of 2"));
  EXPECT_THAT(Error("a.npy", "abc"),
              HasSubstr("truncated: 5 bytes are missing"));
  EXPECT_THAT(Error("a.npy", "0123456789"), HasSubstr("not a .npy file"));
  EXPECT_THAT(Error("a.npy", Npy(NpyText("<f4", "(2,)"), "")),
              HasSubstr("tokens must be integers"));
  EXPECT_THAT(Error("a.npy", Npy(NpyText("|b1", "(2,)"), "\x01\x01")),
              HasSubstr("tokens must be integers"));
  EXPECT_THAT(Error("a.npy", Npy(NpyText(">u2", "(2,)"), "")),
              HasSubstr("elements must be little-endian integers"));
  EXPECT_THAT(Error("a.npy", Npy(NpyText("<u2", "(2, 3)"), "")),
              HasSubstr("tokens must have one dimension"));
  EXPECT_THAT(Error("a.npy", Npy(NpyText("<u2", "(2,)"), "abc")),
              HasSubstr("truncated: 2 tokens in the header, but bytes for 1"));
  EXPECT_THAT(Error("a.npy", Npy(NpyText("<u2", "(1,)"), "abcd")),
              HasSubstr("bytes that are no whole token"));
  EXPECT_THAT(
      Error("a.npy", Npy(NpyText("<i4", "(2,)"), Bytes<int32_t>({5, -1}))),
      HasSubstr("token 1 at byte"));
  EXPECT_THAT(
      Error("a.npy", std::string("\x93NUMPY\x02\x00\xff\xff\xff\x7f", 12)),
      HasSubstr("byte 8: a .npy header of"));
}

}  // namespace
}  // namespace syncline::worker
