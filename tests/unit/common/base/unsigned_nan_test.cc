// Goal: a NaN reads "nan", whatever its sign. Method: numbers as text.

#include "common/base/unsigned_nan.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(UnsignedNanTest, OnlyANanLosesItsSign) {
  const double nan = -std::numeric_limits<double>::quiet_NaN();
  ASSERT_TRUE(std::signbit(nan));
  EXPECT_EQ(absl::StrFormat("%.4f", UnsignedNan(nan)), "nan");
  EXPECT_EQ(absl::StrFormat("%.2f", UnsignedNan(-1.5)), "-1.50");
  EXPECT_EQ(UnsignedNan(-std::numeric_limits<double>::infinity()),
            -std::numeric_limits<double>::infinity());
}

// Log lines and most messages are written by it.
TEST(UnsignedNanTest, StrCatWritesNoSign) {
  const double nan = -std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(absl::StrCat(nan), "nan");
  EXPECT_EQ(absl::StrCat(static_cast<float>(nan)), "nan");
}

}  // namespace
}  // namespace syncline
