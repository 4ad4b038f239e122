// Goal: an incarnation has the same short text everywhere, and the text does
// not show the number. Method: many incarnations.

#include "common/base/incarnation.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::MatchesRegex;

TEST(IncarnationTest, IsFourHexadecimalDigits) {
  std::set<std::string> texts;
  for (uint64_t incarnation = 0; incarnation < 1000; ++incarnation) {
    const std::string text = IncarnationText(incarnation);
    EXPECT_THAT(text, MatchesRegex("0x[0-9a-f][0-9a-f][0-9a-f][0-9a-f]"));
    EXPECT_EQ(text, IncarnationText(incarnation));
    texts.insert(text);
  }
  // Of 1000 numbers below 65536, 7 or 8 pairs are alike.
  EXPECT_GT(texts.size(), 950u);
}

TEST(IncarnationTest, DoesNotShowTheNumber) {
  EXPECT_NE(IncarnationText(0x9f3c), "0x9f3c");
  EXPECT_NE(IncarnationText(uint64_t{0x9f3c} << 48), "0x9f3c");
}

}  // namespace
}  // namespace syncline
