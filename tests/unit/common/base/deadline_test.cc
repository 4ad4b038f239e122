// Goal: the time left is never negative, and a step ends no later than its
// call. Method: times around the deadline.

#include "common/base/deadline.h"

#include "gtest/gtest.h"

namespace syncline {
namespace {

const absl::Time kNow = absl::UnixEpoch() + absl::Hours(1);

TEST(DeadlineTest, TimeLeftIsNeverNegative) {
  EXPECT_EQ(TimeLeft(kNow + absl::Seconds(2), kNow), absl::Seconds(2));
  EXPECT_EQ(TimeLeft(kNow, kNow), absl::ZeroDuration());
  EXPECT_EQ(TimeLeft(kNow - absl::Seconds(2), kNow), absl::ZeroDuration());
}

TEST(DeadlineTest, AStepEndsNoLaterThanItsCall) {
  const absl::Time deadline = kNow + absl::Seconds(2);
  EXPECT_EQ(StepDeadline(deadline, kNow, absl::Seconds(1)),
            kNow + absl::Seconds(1));
  EXPECT_EQ(StepDeadline(deadline, kNow, absl::Seconds(3)), deadline);
}

}  // namespace
}  // namespace syncline
