// Goal: SYNCLINE_CHECK ends the process with the place and the condition, and
// evaluates a true condition once. Method: a process that dies.

#include "common/base/check.h"

#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(CheckDeathTest, AFalseConditionAbortsWithItsPlace) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const int one = 1;
  EXPECT_DEATH(SYNCLINE_CHECK(one == 2),
               "check_test.cc:[0-9]+: check failed: one == 2");
}

TEST(CheckTest, ATrueConditionIsEvaluatedOnce) {
  int evaluated = 0;
  SYNCLINE_CHECK(++evaluated == 1);
  EXPECT_EQ(evaluated, 1);
}

}  // namespace
}  // namespace syncline
