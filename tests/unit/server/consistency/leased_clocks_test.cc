// Goal: each clock is dealt to one worker, in ascending order, and pushes of
// others are refused. Method: pushes by three workers.

#include "server/consistency/leased_clocks.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace syncline::ps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

PushFacts Push(int64_t clock, int64_t next) {
  PushFacts push;
  push.clock = clock;
  push.close_until = next;
  return push;
}
PushFacts Last(int64_t clock, int64_t total) {
  PushFacts push = Push(clock, total);
  push.finished = true;
  return push;
}

TEST(LeasedClocksTest, WhoPushesGetsTheSmallestThatNobodyHas) {
  LeasedClocks leased(3);
  leased.Begin(100, 1000);
  EXPECT_EQ(leased.Next(0), 103);
  EXPECT_EQ(leased.Next(2), 105);
  EXPECT_OK(leased.Check(2, "worker:1", Push(102, 105)));
  leased.Deal(2);
  EXPECT_EQ(leased.Next(2), 106);
  EXPECT_OK(leased.Check(2, "worker:1", Push(105, 106)));
  leased.Deal(2);
  EXPECT_EQ(leased.Next(2), 107);
  leased.Deal(0);
  EXPECT_EQ(leased.Next(0), 108);
  EXPECT_EQ(leased.Next(1), 104) << "it has pushed nothing";
}

TEST(LeasedClocksTest, PushesOfWhatIsNotLeasedAreRefused) {
  LeasedClocks leased(2);
  leased.Begin(0, 100);
  for (const PushFacts& push :
       {Push(0, 3), Push(0, 1), Push(1, 2), Push(2, 3), Last(0, 100)}) {
    const absl::Status status = leased.Check(0, "chief:0 at a:1", push);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << push.clock;
    EXPECT_THAT(std::string(status.message()), HasSubstr("by chief:0 at a:1"));
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("leased to it are 0 and then 2"));
  }
}

TEST(LeasedClocksTest, TheLastClocksAreDealtOnce) {
  LeasedClocks leased(2);
  leased.Begin(0, 5);
  leased.Deal(0);
  EXPECT_EQ(leased.Next(0), 4);
  leased.Deal(1);
  EXPECT_EQ(leased.Next(1), 5) << "there is none";
  EXPECT_OK(leased.Check(1, "worker:0", Last(3, 5)));
  EXPECT_TRUE(absl::IsInvalidArgument(leased.Check(1, "worker:0", Push(3, 5))));
  leased.Deal(0);
  EXPECT_OK(leased.Check(0, "chief:0", Last(4, 5)));
}

TEST(LeasedClocksTest, OfALostWorkersLeasesThoseThatReturnAreTheLast) {
  LeasedClocks leased(2);
  leased.Begin(0, 100);
  EXPECT_THAT(leased.Of(1), ElementsAre(1, 3));
  leased.Deal(1);
  EXPECT_THAT(leased.Of(1), ElementsAre(3, 4));
  leased.Return(1, {3, 4});
  EXPECT_OK(leased.Check(1, "worker:0", Push(3, 4)));
  leased.Deal(1);
  EXPECT_OK(leased.Check(1, "worker:0", Last(4, 100)));
  leased.Deal(0);
  EXPECT_EQ(leased.Next(0), 5) << "no lease was dealt to the lost one";

  LeasedClocks some(2);
  some.Begin(0, 4);
  some.Return(1, {3});
  EXPECT_OK(some.Check(1, "worker:0", Last(3, 4)));
  some.Return(0, {});
  EXPECT_THAT(some.Of(0), ElementsAre());
}

TEST(LeasedClocksTest, AnAttemptMayHaveFewerClocksThanWorkers) {
  LeasedClocks leased(4);
  leased.Begin(7, 9);
  EXPECT_OK(leased.Check(1, "worker:0", Last(8, 9)));
  for (uint32_t rank = 0; rank < 4; ++rank) EXPECT_EQ(leased.Next(rank), 9);
}

}  // namespace
}  // namespace syncline::ps
