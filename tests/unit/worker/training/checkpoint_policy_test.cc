// Goal: a checkpoint is due at the clocks and after the times that a job names.

#include "worker/training/checkpoint_policy.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;

const absl::Time kStart = absl::UnixEpoch();

TEST(CheckpointPolicyTest, AtEachMultipleOfItsClocks) {
  CheckpointSpec spec;
  spec.set_every_clocks(4);
  CheckpointPolicy policy(spec, kStart);
  std::vector<int> due;
  for (int clock = 1; clock <= 12; ++clock) {
    if (policy.IsDue(clock - 1, clock, kStart + absl::Hours(clock)))
      due.push_back(clock);
    policy.OnBegun(kStart);
  }
  EXPECT_THAT(due, ElementsAre(4, 8, 12));
  EXPECT_EQ(policy.PointBetween(7, 8), 8);
  EXPECT_EQ(policy.PointBetween(8, 9), std::nullopt)
      << "what was left out is not made up for";
}

TEST(CheckpointPolicyTest, WhenTheTimeSinceTheLastBeginHasPassed) {
  CheckpointSpec spec;
  spec.set_every_seconds(0.5);
  CheckpointPolicy policy(spec, kStart);
  EXPECT_FALSE(policy.IsDue(0, 1, kStart + absl::Milliseconds(499)));
  EXPECT_TRUE(policy.IsDue(0, 1, kStart + absl::Milliseconds(500)));
  EXPECT_TRUE(policy.IsDue(1, 2, kStart + absl::Seconds(9))) << "it stays due";
  policy.OnBegun(kStart + absl::Seconds(9));
  EXPECT_FALSE(policy.IsDue(2, 3, kStart + absl::Milliseconds(9499)));
  EXPECT_TRUE(policy.IsDue(2, 3, kStart + absl::Milliseconds(9500)));
  EXPECT_EQ(policy.PointBetween(2, 3), std::nullopt);
}

// With leased data the chief makes some clocks only.
TEST(CheckpointPolicyTest, APointMayLieBetweenTwoSteps) {
  CheckpointSpec spec;
  spec.set_every_clocks(10);
  const CheckpointPolicy policy(spec, kStart);
  EXPECT_EQ(policy.PointBetween(3, 9), std::nullopt);
  EXPECT_EQ(policy.PointBetween(3, 10), 10);
  EXPECT_EQ(policy.PointBetween(9, 35), 10) << "the first of several";
  EXPECT_EQ(policy.PointBetween(10, 19), std::nullopt);
  EXPECT_TRUE(policy.IsDue(8, 14, kStart));
}

TEST(CheckpointPolicyTest, WhicheverComesFirst) {
  CheckpointSpec spec;
  spec.set_every_clocks(10);
  spec.set_every_seconds(1);
  const CheckpointPolicy policy(spec, kStart);
  EXPECT_TRUE(policy.IsDue(9, 10, kStart));
  EXPECT_TRUE(policy.IsDue(2, 3, kStart + absl::Seconds(1)));
  EXPECT_FALSE(policy.IsDue(2, 3, kStart));
}

TEST(CheckpointPolicyTest, NeverWithoutEither) {
  const CheckpointPolicy policy(CheckpointSpec(), kStart);
  EXPECT_FALSE(policy.IsDue(999, 1000, kStart + absl::Hours(1000)));
}

}  // namespace
}  // namespace syncline::worker
