// Goal: windows of tokens with what follows each, none across files, none
// missed. Method: bytes in order, so that a token is its own offset; the
// messages for what does not fit.

#include "worker/data/formats/token_table.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/data/data_files.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

FieldRequest Tokens(int64_t width) {
  FieldRequest field("tokens");
  field.integers = true;
  field.padded_width = width;
  return field;
}
FieldRequest Next(int64_t width) {
  FieldRequest field("next");
  field.padded_width = width;
  return field;
}

// Bytes begin, begin + 1 ...
std::string Counted(int begin, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += static_cast<char>(begin + i);
  return text;
}

class TokenTableTest : public DataFilesTest {
 protected:
  absl::StatusOr<std::unique_ptr<SampleTable>> Load(
      const std::string& text, const std::vector<FieldRequest>& fields) {
    TokenSource source;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &source));
    return LoadTokens(source, fields, dir_);
  }
  std::string Error(const std::string& text,
                    const std::vector<FieldRequest>& fields) {
    const auto table = Load(text, fields);
    return table.ok() ? "OK" : std::string(table.status().message());
  }
};

TEST_F(TokenTableTest, WindowsAndWhatFollows) {
  Write("a.txt", Counted(0, 10));
  const auto table = Load("path: 'a.txt'", {Tokens(3), Next(3)});
  ASSERT_TRUE(table.ok()) << table.status();
  ASSERT_EQ((*table)->size(), 3);
  EXPECT_EQ((*table)->width(0), 3);
  std::vector<int64_t> tokens(6);
  (*table)->ReadInts(0, {2, 0}, tokens.data());
  EXPECT_THAT(tokens, ElementsAre(6, 7, 8, 0, 1, 2));
  std::vector<float> next(6);
  (*table)->Read(1, {2, 0}, 1, 0, next.data());
  EXPECT_THAT(next, ElementsAre(7, 8, 9, 1, 2, 3));
  EXPECT_THAT((*table)->Where(1, 2), HasSubstr("a.txt: token 7 at byte 7"));
}

TEST_F(TokenTableTest, TheLastWindowThatFitsIsThere) {
  for (const auto& [count, stride, samples] :
       {std::tuple{4, 0, 1}, {6, 0, 1}, {7, 0, 2}, {7, 1, 4}, {8, 2, 3}}) {
    Write("a.txt", Counted(0, count));
    const auto table = Load(absl::StrCat("path: 'a.txt' stride: ", stride),
                            {Tokens(3), Next(3)});
    ASSERT_TRUE(table.ok()) << table.status();
    EXPECT_EQ((*table)->size(), samples) << count << " by " << stride;
  }
}

TEST_F(TokenTableTest, NoWindowCrossesAFile) {
  Write("1.txt", Counted(0, 8));
  Write("2.txt", Counted(100, 3));  // too short for one
  Write("3.txt", Counted(200, 4));
  const auto table = Load("path: '*.txt'", {Tokens(3), Next(3)});
  ASSERT_TRUE(table.ok()) << table.status();
  ASSERT_EQ((*table)->size(), 3);
  std::vector<int64_t> tokens(9);
  (*table)->ReadInts(0, {0, 1, 2}, tokens.data());
  EXPECT_THAT(tokens, ElementsAre(0, 1, 2, 3, 4, 5, 200, 201, 202));
  EXPECT_THAT((*table)->Where(0, 2), HasSubstr("3.txt: token 0"));
}

TEST_F(TokenTableTest, APartOfAFile) {
  Write("a.txt", Counted(0, 20));
  const auto table = Load("path: 'a.txt' begin: 0.5", {Tokens(4), Next(4)});
  ASSERT_TRUE(table.ok()) << table.status();
  ASSERT_EQ((*table)->size(), 2);
  std::vector<int64_t> tokens(4);
  (*table)->ReadInts(0, {1}, tokens.data());
  EXPECT_THAT(tokens, ElementsAre(14, 15, 16, 17));
}

TEST_F(TokenTableTest, WhatDoesNotFitIsNamed) {
  Write("a.txt", Counted(97, 6));
  EXPECT_THAT(Error("path: 'a.txt' vocabulary: 100", {Tokens(3), Next(3)}),
              HasSubstr("a.txt: token 3 at byte 3: 100 is not below the "
                        "vocabulary's 100"));
  EXPECT_THAT(Error("path: 'a.txt'", {Tokens(6), Next(6)}),
              HasSubstr("6 tokens are too few for a window of 6 and the next"));
  EXPECT_THAT(Error("path: 'a.txt'", {Tokens(3), Next(1)}),
              HasSubstr("\"tokens\" goes where 3 tokens are taken, \"next\" "
                        "where 1 are"));
  EXPECT_THAT(Error("path: 'a.txt'", {"image"}),
              HasSubstr("\"tokens\" and \"next\""));
  EXPECT_THAT(Error("path: 'a.txt'", {FieldRequest("tokens")}),
              HasSubstr("can only feed an int64 input"));
  EXPECT_THAT(Error("path: 'b.txt'", {Tokens(3), Next(3)}), HasSubstr("b.txt"));
}

}  // namespace
}  // namespace syncline::worker
