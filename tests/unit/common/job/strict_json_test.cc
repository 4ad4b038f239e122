// Goal: only RFC 8259 passes, and each error says where and what.
// Method: a table.

#include "common/job/strict_json.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

TEST(StrictJsonTest, TakesWhatIsJson) {
  for (const char* text :
       {"{}", "[]", "null", "true", "-0.5e+3", "\"\\u00e4\\n\"",
        " { \"a\" : [ 1 , 2 ] , \"b\" : { } } \n", "[[[]]]", "0",
        "{\"\": \"\"}"}) {
    const auto value = ParseStrictJson(text);
    EXPECT_TRUE(value.ok()) << text << ": " << value.status();
  }
}

TEST(StrictJsonTest, RefusesWhatIsNotAndSaysWhere) {
  const struct {
    const char* text;
    const char* error;
  } kCases[] = {
      {"", "1:1: not JSON: it ends where a value should be"},
      {"{'a':1}", "1:2: not JSON: keys are written in double quotes"},
      {"{\"a\":'b'}", "1:6: not JSON: strings are written in double quotes"},
      {"{a:1}", "1:2: not JSON: expected a key in double quotes"},
      {"{\"a\":1,}", "1:8: not JSON: a comma before '}'"},
      {"[1,]", "1:4: not JSON: a comma before ']'"},
      {"[1\n 2]", "2:2: not JSON: expected ',' or ']'"},
      {"{\"a\" 1}", "1:6: not JSON: expected ':'"},
      {"{\"a\":1 \"b\":2}", "1:8: not JSON: expected ',' or '}'"},
      {"{\"a\":1,\"a\":2}", "1:8: not JSON: key \"a\" occurs twice"},
      {"{} x", "1:4: not JSON: text after the end"},
      {"\"a", "1:3: not JSON: a string without end"},
      {"\"a\nb\"", "1:3: not JSON: a control character"},
      {"\"\\q\"", "1:3: not JSON: unknown escape"},
      {"\"\\u12x4\"", "1:6: not JSON: \\u needs 4 digits"},
      {"01", "a number starts with 0"},
      {"1.", "expected a digit"},
      {"-", "expected a digit"},
      {"1e", "expected a digit"},
      {"+1", "expected a value"},
      {"NaN", "expected a value"},
      {"Infinity", "expected a value"},
      {"nul", "expected a value"},
      {"// note\n{}", "expected a value"},
      {"\xef\xbb\xbf{}", "expected a value"},
      {"{", "expected a key"},
      {"[", "it ends where a value should be"},
  };
  for (const auto& c : kCases) {
    const auto value = ParseStrictJson(c.text);
    ASSERT_FALSE(value.ok()) << c.text;
    EXPECT_EQ(value.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(value.status().message()), HasSubstr(c.error));
  }
}

TEST(StrictJsonTest, KeysThatAreEqualOnlyAfterUnescapingAreEqual) {
  EXPECT_FALSE(ParseStrictJson("{\"a\":1,\"\\u0061\":2}").ok());
}

TEST(StrictJsonTest, DepthAndSizeAreBounded) {
  const auto nested = [](int depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(ParseStrictJson(nested(33)).ok());
  EXPECT_FALSE(ParseStrictJson(nested(34)).ok());
  EXPECT_FALSE(ParseStrictJson(std::string(1 << 20, '[')).ok());
  const JsonLimits five = {.values_max = 5};
  EXPECT_TRUE(ParseStrictJson("{\"a\":[1,null],\"b\":\"c\"}", five).ok());
  EXPECT_THAT(
      std::string(ParseStrictJson("{\"a\":[1,null,2],\"b\":\"c\"}", five)
                      .status()
                      .message()),
      HasSubstr("not JSON: more than 5 values"));
  const std::string large = "\"" + std::string(1 << 20, 'x') + "\"";
  EXPECT_THAT(std::string(ParseStrictJson(large).status().message()),
              HasSubstr("at most 1048576 are read"));
}

TEST(StrictJsonTest, BytesThatAreNotUtf8AreRefused) {
  EXPECT_FALSE(ParseStrictJson("\"\xff\xfe\"").ok());
}

}  // namespace
}  // namespace syncline
