// Goal: only the time between two ticks counts as time in which a process was
// frozen. Method: examples.

#include "server/service/tick_gap.h"

#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

constexpr absl::Duration kPeriod = absl::Milliseconds(50);
const absl::Time kStart = absl::UnixEpoch();

TEST(TickGapTest, AnOrdinaryGapIsNone) {
  const TickGap gap(kPeriod, kStart);
  EXPECT_EQ(gap.OnBegin(kStart + kPeriod), absl::ZeroDuration());
  EXPECT_EQ(gap.OnBegin(kStart + TickGap::kFrozenMin), absl::ZeroDuration());
}

TEST(TickGapTest, AFreezeIsTheGapWithoutThePeriod) {
  const TickGap gap(kPeriod, kStart);
  EXPECT_EQ(gap.OnBegin(kStart + absl::Seconds(60) + kPeriod),
            absl::Seconds(60));
}

TEST(TickGapTest, ALongTickIsNoFreeze) {
  TickGap gap(kPeriod, kStart);
  EXPECT_EQ(gap.OnBegin(kStart + kPeriod), absl::ZeroDuration());
  const absl::Time end = kStart + kPeriod + absl::Seconds(5);
  gap.OnEnd(end);
  EXPECT_EQ(gap.OnBegin(end + kPeriod), absl::ZeroDuration());
}

}  // namespace
}  // namespace syncline::ps
