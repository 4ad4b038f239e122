// Goal: lines and numbers come out as written, with the place the user finds
// them at. Method: small files; a table of numbers.

#include "worker/data/reading/text_input.h"

#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/data/data_files.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TextInputTest : public DataFilesTest {
 protected:
  std::vector<std::string> Lines(absl::string_view content) const {
    auto reader = LineReader::Open(Write("text", content));
    EXPECT_TRUE(reader.ok()) << reader.status();
    std::vector<std::string> lines;
    absl::string_view line;
    while (*reader->Next(&line)) {
      lines.emplace_back(line);
      EXPECT_EQ(reader->line_number(), static_cast<int64_t>(lines.size()));
    }
    return lines;
  }
};

TEST_F(TextInputTest, SplitsLines) {
  EXPECT_THAT(Lines("a\nbb\n\nc\n"), ElementsAre("a", "bb", "", "c"));
  EXPECT_THAT(Lines("a\r\nb\r\n"), ElementsAre("a", "b"));
  EXPECT_THAT(Lines("a\nb"), ElementsAre("a", "b"));
  EXPECT_THAT(Lines("\xef\xbb\xbf"
                    "1,2\n"),
              ElementsAre("1,2"));
  EXPECT_THAT(Lines(""), ElementsAre());
  EXPECT_THAT(Lines("\n"), ElementsAre(""));
  EXPECT_THAT(Lines(Gzip("x\ny\n")), ElementsAre("x", "y"));
}

TEST_F(TextInputTest, LinesLongerThanTheBufferAndAcrossItsEnd) {
  std::string content;
  std::vector<std::string> expected;
  for (const size_t length :
       {100'000u, 300'000u, 5u, 1'000'000u, 0u, 262'144u}) {
    expected.push_back(
        std::string(length, static_cast<char>('a' + length % 7)));
    absl::StrAppend(&content, expected.back(), "\n");
  }
  EXPECT_EQ(Lines(content), expected);
}

TEST_F(TextInputTest, ALineWithoutEndIsRefused) {
  // Compresses to a few kilobytes: a small file must not take all memory.
  auto reader =
      LineReader::Open(Write("bomb", Gzip(std::string(70 << 20, 'x'))));
  absl::string_view line;
  const absl::Status status = reader->Next(&line).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(Path("bomb:1")));
}

TEST_F(TextInputTest, ParsesNumbers) {
  const std::vector<std::pair<absl::string_view, float>> good = {
      {"0", 0.0f},
      {"-1", -1.0f},
      {"+1", 1.0f},
      {" 2.5 ", 2.5f},
      {"1e-3", 1e-3f},
      {".5", 0.5f},
      {"5.", 5.0f},
      {"1E5", 1e5f},
      {"0.1", 0.1f},
      {"16777217", 16777216.0f},
      {"3.4028234e38", 3.4028234e38f},
      {"-0", -0.0f},
      {"1e-50", 0.0f},
      {"+.25", 0.25f},
  };
  for (const auto& [text, expected] : good) {
    const auto value = ParseNumber(text);
    ASSERT_TRUE(value.ok()) << text << ": " << value.status();
    EXPECT_EQ(*value, expected) << text;
  }
}

TEST_F(TextInputTest, RefusesWhatIsNoFiniteNumber) {
  const std::vector<std::pair<absl::string_view, const char*>> bad = {
      {"", "\"\" is not a number; a missing value must be"},
      {"NA", "\"NA\" is not a number; a missing value must be"},
      {"NaN", "\"NaN\" is not a finite number; a missing value must be"},
      {" null ", "is not a number; a missing value must be"},
      {"1.234,5", "\"1.234,5\" is not a number"},
      {"abc", "\"abc\" is not a number"},
      {"1x", "\"1x\" is not a number"},
      {"1 2", "\"1 2\" is not a number"},
      {"+-1", "is not a number"},
      {"++1", "is not a number"},
      {"0x10", "is not a number"},
      {"1,5", "is not a number; decimals have a point, not a comma"},
      {"Gr\xf6\xdf", "\"Gr\\xf6\\xdf\" is not a number"},
      {"nan", "is not a finite number"},
      {"-NaN", "is not a finite number"},
      {"inf", "is not a finite number"},
      {"-Infinity", "is not a finite number"},
      {"1e39", "does not fit float32"},
      {"-1e999", "does not fit float32"},
      {"a\nb\x01", "\"a\\nb\\x01\" is not a number"},
  };
  for (const auto& [text, message] : bad) {
    const auto value = ParseNumber(text);
    ASSERT_EQ(value.status().code(), absl::StatusCode::kInvalidArgument)
        << text;
    EXPECT_THAT(std::string(value.status().message()), HasSubstr(message));
  }
  EXPECT_LT(ParseNumber(std::string(1000, 'x')).status().message().size(), 80u);
}

TEST_F(TextInputTest, TextInUtf16IsNamed) {
  for (const std::string& content : {std::string("\xff\xfe"
                                                 "1\0\n\0",
                                                 6),
                                     std::string("\xfe\xff\0"
                                                 "1",
                                                 4)}) {
    auto reader = LineReader::Open(Write("t.csv", content));
    ASSERT_TRUE(reader.ok());
    absl::string_view line;
    const auto more = reader->Next(&line);
    EXPECT_EQ(more.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(more.status().message()),
                HasSubstr("t.csv: is in UTF-16; convert it to UTF-8"));
  }
}

TEST_F(TextInputTest, ParsesWholeIntegersOfInt64) {
  const std::vector<std::pair<absl::string_view, int64_t>> good = {
      {"0", 0},
      {"-0", 0},
      {" +7\t", 7},
      {"9223372036854775807", std::numeric_limits<int64_t>::max()},
      {"-9223372036854775808", std::numeric_limits<int64_t>::min()},
  };
  for (const auto& [text, expected] : good) {
    const auto value = ParseInteger(text);
    ASSERT_TRUE(value.ok()) << text << ": " << value.status();
    EXPECT_EQ(*value, expected) << text;
  }
  for (const char* text :
       {"", " ", "+", "-", "+-1", "1.0", "1e3", "0x1", "a"}) {
    EXPECT_THAT(std::string(ParseInteger(text).status().message()),
                HasSubstr("is not an integer"));
  }
  EXPECT_THAT(
      std::string(ParseInteger("-9223372036854775809").status().message()),
      HasSubstr("does not fit int64"));
}

TEST_F(TextInputTest, OriginsSurviveSkippedLinesAndSeveralFiles) {
  LineOrigins origins;
  std::vector<std::string> expected;
  for (const char* name : {"one", "two"}) {
    // Lines 1 and 4 and 5 are no samples.
    auto reader = LineReader::Open(Write(name, "\na\nb\n\n\nc\nd\n"));
    absl::string_view line;
    while (*reader->Next(&line)) {
      if (line.empty()) continue;
      origins.Add(*reader);
      expected.push_back(reader->Where());
    }
  }
  ASSERT_EQ(expected.size(), 8u);
  EXPECT_EQ(expected[3], Path("one:7"));
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(origins.Where(i), expected[i]);
  }
}

}  // namespace
}  // namespace syncline::worker
