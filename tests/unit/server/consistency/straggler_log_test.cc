// Goal: time is put down to the worker that held others up, once, and what goes
// on counts. Method: a log of three workers and a clock by hand.

#include "server/consistency/straggler_log.h"

#include <optional>

#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

using Holder = StragglerLog::Holder;

absl::Time At(int seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

TEST(StragglerLogTest, AWaitIsBlamedOnItsHolderAndGrowsWhileItLasts) {
  StragglerLog log(3);
  log.Update(Holder{1, 7}, At(10));
  EXPECT_EQ(log.Of(1, At(12)).time, absl::Seconds(2));
  EXPECT_EQ(log.Of(1, At(12)).clocks, 0u);
  log.Update(Holder{1, 7}, At(13));  // the same wait
  log.Update(std::nullopt, At(15));
  EXPECT_EQ(log.Of(1, At(20)).time, absl::Seconds(5));
  EXPECT_EQ(log.Of(1, At(20)).clocks, 1u);
  EXPECT_EQ(log.Of(0, At(20)).time, absl::ZeroDuration());
  EXPECT_EQ(log.Of(2, At(20)).clocks, 0u);
}

TEST(StragglerLogTest, EachClockIsAWaitOfItsOwn) {
  StragglerLog log(3);
  log.Update(Holder{1, 7}, At(0));
  log.Update(Holder{1, 8}, At(1));
  log.Update(Holder{2, 8}, At(3));
  log.Update(std::nullopt, At(7));
  EXPECT_EQ(log.Of(1, At(9)).clocks, 2u);
  EXPECT_EQ(log.Of(1, At(9)).time, absl::Seconds(3));
  EXPECT_EQ(log.Of(2, At(9)).clocks, 1u);
  EXPECT_EQ(log.Of(2, At(9)).time, absl::Seconds(4));
}

TEST(StragglerLogTest, NobodyIsToBlameForAFrozenProcess) {
  StragglerLog log(2);
  log.Update(Holder{0, 1}, At(0));
  log.OnFrozen(absl::Seconds(5));
  EXPECT_EQ(log.Of(0, At(5)).time, absl::ZeroDuration());
  EXPECT_EQ(log.Of(0, At(4)).time, absl::ZeroDuration());
  log.Update(std::nullopt, At(6));
  EXPECT_EQ(log.Of(0, At(6)).time, absl::Seconds(1));
}

}  // namespace
}  // namespace syncline::ps
