// Goal: shard 0 and the workers have the same first clocks, each once. Method:
// the ranks of attempts that begin at the job's start and near its end.

#include "common/regime/leased_clock.h"

#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(LeasedClockTest, TheFirstClocksAreByRank) {
  EXPECT_EQ(FirstLeasedClock(0, 3, 12), 3);
  EXPECT_EQ(FirstLeasedClock(10, 0, 12), 10);
  EXPECT_EQ(FirstLeasedClock(10, 1, 12), 11);
  EXPECT_EQ(FirstLeasedClock(10, 2, 12), 12) << "there is none";
  EXPECT_EQ(FirstLeasedClock(10, 7, 12), 12);
}

}  // namespace
}  // namespace syncline
