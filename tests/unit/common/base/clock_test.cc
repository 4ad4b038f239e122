// Goal: the monotonic time is one that waits can be counted in, and that can be
// handed to the standard library. Method: properties of the real clock; that a
// step of the wall clock leaves it alone is shown by
// tests/fault/clock_step_test.

#include "common/base/clock.h"

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(MonotonicNowTest, NeverGoesBack) {
  absl::Time last = MonotonicNow();
  for (int i = 0; i < 10000; ++i) {
    const absl::Time now = MonotonicNow();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(MonotonicNowTest, BeginsAsTheWallClock) {
  const absl::Duration apart = absl::Now() - MonotonicNow();
  EXPECT_LT(absl::AbsDuration(apart), absl::Minutes(1));
}

TEST(MonotonicNowTest, IsTheStandardLibrarysSteadyClock) {
  const absl::Time before = MonotonicNow();
  const auto steady = std::chrono::steady_clock::now();
  const absl::Time after = MonotonicNow();
  EXPECT_LE(ToSteadyTime(before), steady + std::chrono::microseconds(1));
  EXPECT_GE(ToSteadyTime(after), steady - std::chrono::microseconds(1));
}

TEST(MonotonicNowTest, InfiniteTimesAreFarAndStillInRange) {
  const auto now = std::chrono::steady_clock::now();
  EXPECT_GT(ToSteadyTime(absl::InfiniteFuture()), now + std::chrono::hours(1));
  EXPECT_LT(ToSteadyTime(absl::InfinitePast()), now - std::chrono::hours(1));
}

}  // namespace
}  // namespace syncline
