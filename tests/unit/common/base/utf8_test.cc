// Goal: bytes that are no UTF-8 are found as protobuf finds them, and can be
// put into a message all the same. Method: tables of characters and of bytes
// that are none.

#include "common/base/utf8.h"

#include <string>

#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(Utf8Test, WhatIsUtf8StaysAsItIs) {
  for (const char* text :
       {"", "plain\ttext\n", "\xc3\xa4\xc3\xb6", "\xe2\x82\xac",
        "\xf0\x9f\x98\x80", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(IsUtf8(text)) << text;
    EXPECT_EQ(Utf8Text(text), text);
  }
}

TEST(Utf8Test, EachByteThatIsNoneIsWrittenOut) {
  const struct {
    const char* bytes;
    const char* text;
  } kCases[] = {
      {"Gr\xf6\xdf"
       "e",
       "Gr\\xf6\\xdfe"},  // Latin-1
      {"\xff\xfe"
       "1",
       "\\xff\\xfe1"},                                    // UTF-16
      {"a\xe2\x82", "a\\xe2\\x82"},                       // cut short
      {"\x80", "\\x80"},                                  // no lead
      {"\xc0\xaf", "\\xc0\\xaf"},                         // overlong
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"},                // a surrogate
      {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},       // above U+10FFFF
      {"\xc3\xa4\xe4\xc3\xa4", "\xc3\xa4\\xe4\xc3\xa4"},  // between others
  };
  for (const auto& c : kCases) {
    EXPECT_FALSE(IsUtf8(c.bytes)) << c.text;
    EXPECT_EQ(Utf8Text(c.bytes), c.text);
    EXPECT_TRUE(IsUtf8(Utf8Text(c.bytes)));
  }
}

TEST(Utf8Test, WhatIsShortenedSaysSo) {
  EXPECT_EQ(Utf8Shortened("a\xc3\xa4", 3), "a\xc3\xa4");
  EXPECT_EQ(Utf8Shortened("a\xc3\xa4", 2), "a ...");
  EXPECT_EQ(Utf8Shortened("", 0), "");
}

}  // namespace
}  // namespace syncline
