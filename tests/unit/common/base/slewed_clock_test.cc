// Goal: a step of the wall clock ends no lease, and is followed in the
// end. Method: Follow with invented times; Now against the system's.

#include "common/base/slewed_clock.h"

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(200);

// Ticks for `time` while the wall clock is `ahead` of a steady one.
absl::Time Pass(absl::Duration time, absl::Duration ahead, absl::Time now,
                absl::Time* steady) {
  for (absl::Duration t; t < time; t += kTick) {
    *steady += kTick;
    now = SlewedClock::Follow(now, *steady + ahead, kTick);
  }
  return now;
}

TEST(SlewedClockTest, FollowsAWallClockThatIsRight) {
  absl::Time steady = absl::UnixEpoch();
  const absl::Time now =
      Pass(absl::Seconds(100), absl::ZeroDuration(), steady, &steady);
  EXPECT_EQ(now, steady);
}

TEST(SlewedClockTest, AStepIsFollowedATenthAtATime) {
  for (const absl::Duration step : {absl::Hours(1), -absl::Hours(1)}) {
    absl::Time steady = absl::UnixEpoch();
    absl::Time now = Pass(absl::Seconds(5), step, steady, &steady);
    const absl::Duration seen = now - absl::UnixEpoch();
    EXPECT_LE(absl::AbsDuration(seen - absl::Seconds(5)),
              absl::Milliseconds(501));
    now = Pass(absl::Hours(10), step, now, &steady);
    EXPECT_LE(absl::AbsDuration(now - (steady + step)), absl::Milliseconds(1));
  }
}

TEST(SlewedClockTest, TimeInWhichTheProcessWasFrozenDoesNotCount) {
  absl::Time steady = absl::UnixEpoch();
  absl::Time now = steady;
  const absl::Duration frozen = absl::Seconds(6);
  steady += frozen;
  now = SlewedClock::Follow(now, steady, frozen);
  EXPECT_LE(now - absl::UnixEpoch(), 1.1 * SlewedClock::kGapMax);
  // It catches up while the process is awake, too slowly for a lease to see.
  now = Pass(absl::Seconds(1), absl::ZeroDuration(), now, &steady);
  EXPECT_LE(
      now - absl::UnixEpoch(),
      1.1 * (SlewedClock::kGapMax + absl::Seconds(1)) + absl::Milliseconds(1));
  now = Pass(absl::Minutes(2), absl::ZeroDuration(), now, &steady);
  EXPECT_EQ(now, steady);
}

TEST(SlewedClockTest, NeverGoesBack) {
  const absl::Time now = absl::UnixEpoch();
  EXPECT_EQ(SlewedClock::Follow(now, now - absl::Hours(1), kTick),
            now + 0.9 * kTick);
  EXPECT_EQ(SlewedClock::Follow(now, now - absl::Hours(1), {}), now);
}

TEST(SlewedClockTest, BeginsAsTheWallClock) {
  SlewedClock clock;
  const absl::Time before = absl::Now();
  const absl::Time first = clock.Now();
  EXPECT_GE(first, before);
  EXPECT_LE(first, absl::Now());
  EXPECT_GE(clock.Now(), first);
}

}  // namespace
}  // namespace syncline
