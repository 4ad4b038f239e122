// Goal: whatever a command writes, in whatever pieces, foreign text steers no
// terminal, and only the command itself may clear its line. Method: a stream
// into a string.

#include "scheduler/ctl/text/printable_stream.h"

#include <sstream>

#include "gtest/gtest.h"

namespace syncline::ctl {
namespace {

TEST(PrintableStreamTest, ForeignTextIsEscapedAndWordsAreNot) {
  std::ostringstream out;
  PrintableStream stream(&out);
  stream << "host "
         << "\x1b[2J" << 'x' << '\r' << 7 << " größer\n";
  EXPECT_EQ(out.str(), "host \\x1b[2Jx\\x0d7 größer\n");
}

TEST(PrintableStreamTest, ACharacterMayComeInPieces) {
  std::ostringstream out;
  {
    PrintableStream stream(&out);
    for (const char c : std::string("ö節\xf0\x9f\x98\x80\xc2\x9b")) stream << c;
    stream.flush();
    EXPECT_EQ(out.str(), "ö節\xf0\x9f\x98\x80\\u009b");
    stream << "\xc3";
    EXPECT_EQ(out.str(), "ö節\xf0\x9f\x98\x80\\u009b");
  }
  EXPECT_EQ(out.str(), "ö節\xf0\x9f\x98\x80\\u009b\\xc3");
}

TEST(PrintableStreamTest, OwnControlSequencesPass) {
  std::ostringstream out;
  PrintableStream stream(&out);
  stream << "a";
  WriteRaw("\r\033[K", &stream);
  stream << "b";
  EXPECT_EQ(out.str(), "a\r\033[Kb");
  std::ostringstream plain;
  WriteRaw("\r\033[K", &plain);
  EXPECT_EQ(plain.str(), "\r\033[K");
}

}  // namespace
}  // namespace syncline::ctl
