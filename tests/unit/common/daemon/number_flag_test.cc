// Goal: "nan" in any spelling is refused, and whatever is or is not another
// number is left to the flag's own checks. Method: a table.

#include "common/daemon/number_flag.h"

#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(RefuseNaNTest, RefusesEverySpelling) {
  for (const char* text : {"nan", "NaN", "-nan", "NAN(1)", " nan"}) {
    EXPECT_NE(RefuseNaN(text), "") << text;
  }
  EXPECT_EQ(RefuseNaN("nan"), "Value nan is not a number");
}

TEST(RefuseNaNTest, LeavesTheRestToOthers) {
  for (const char* text : {"0", "-1.5", "1e300", "inf", "x", ""}) {
    EXPECT_EQ(RefuseNaN(text), "") << text;
  }
}

}  // namespace
}  // namespace syncline
