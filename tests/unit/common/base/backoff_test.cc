// Goal: waits grow, stay within the cap, and jitter only shortens them.
// Method: fixed "random" values; the function is pure.

#include "common/base/backoff.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(BackoffTest, DoublesUpToTheCap) {
  const Backoff backoff;
  EXPECT_EQ(BackoffDelay(backoff, 0, 0), absl::Milliseconds(100));
  EXPECT_EQ(BackoffDelay(backoff, 1, 0), absl::Milliseconds(200));
  EXPECT_EQ(BackoffDelay(backoff, 5, 0), absl::Milliseconds(3200));
  EXPECT_EQ(BackoffDelay(backoff, 6, 0), absl::Seconds(5));
}

TEST(BackoffTest, AttemptsWithoutEndStayAtTheCap) {
  EXPECT_EQ(BackoffDelay(Backoff{}, 1 << 30, 0), absl::Seconds(5));
  EXPECT_EQ(BackoffDelay(Backoff{}, -1, 0), absl::Milliseconds(100));
}

TEST(BackoffTest, JitterTakesAwayAtMostItsShare) {
  Backoff backoff;
  backoff.jitter = 0.5;
  EXPECT_EQ(BackoffDelay(backoff, 0, 0.5), absl::Milliseconds(75));
  EXPECT_GT(BackoffDelay(backoff, 0, 0.999), absl::Milliseconds(50));
}

}  // namespace
}  // namespace syncline
