// Goal: foreign text cannot steer a terminal, and text that people write stays
// as it is. Method: examples of both, and every byte.

#include "common/base/printable.h"

#include <string>

#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(PrintableTest, WordsStayAsTheyAre) {
  const std::string words =
      "node-7.example, größer, 節点, \xf0\x9f\x98\x80\n\tnext \\x1b";
  EXPECT_EQ(Printable(words), words);
  EXPECT_EQ(Printable(""), "");
}

TEST(PrintableTest, WhatSteersATerminalIsShown) {
  EXPECT_EQ(Printable("a\x1b[2Jb\rc\bd\x7f"), "a\\x1b[2Jb\\x0dc\\x08d\\x7f");
  EXPECT_EQ(Printable(std::string("nul\0", 4)), "nul\\x00");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "\\u009b31m");  // CSI in one character
  EXPECT_EQ(Printable("a\xe2\x80\xae"
                      "cba"),
            "a\\u202ecba");
}

TEST(PrintableTest, WhatIsNoCharacterIsShownByteByByte) {
  EXPECT_EQ(Printable("\xff"), "\\xff");
  EXPECT_EQ(Printable("\xc3"), "\\xc3");           // cut off
  EXPECT_EQ(Printable("\xc0\x9b"), "\\xc0\\x9b");  // overlong
  EXPECT_EQ(Printable("\xe0\x80\x9b"), "\\xe0\\x80\\x9b");
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

TEST(PrintableTest, OnceIsEnough) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text = {static_cast<char>(first),
                                static_cast<char>(second)};
      const std::string once = Printable(text);
      EXPECT_EQ(Printable(once), once);
    }
  }
}

TEST(PrintableTest, KnowsACharacterThatIsNotWholeYet) {
  EXPECT_EQ(OpenCharacterBytes(""), 0);
  EXPECT_EQ(OpenCharacterBytes("abc"), 0);
  EXPECT_EQ(OpenCharacterBytes("ab\xc3"), 1);
  EXPECT_EQ(OpenCharacterBytes("ab\xc3\xb6"), 0);
  EXPECT_EQ(OpenCharacterBytes("\xf0\x9f\x98"), 3);
  EXPECT_EQ(OpenCharacterBytes("\x80\x80\x80\x80"), 0);  // will never be one
}

}  // namespace
}  // namespace syncline
