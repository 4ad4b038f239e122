// Goal: the wall clock's steps back are noticed, and nothing else is taken for
// one. Method: times as a system would show them. That gRPC's timers go on is
// shown by tests/fault/clock_step_test.

#include "common/rpc/grpc_timers.h"

#include "gtest/gtest.h"

namespace syncline {
namespace {

constexpr absl::Time kStart = absl::FromUnixSeconds(1000);
constexpr absl::Duration kTick = absl::Milliseconds(500);

TEST(WallClockStepsTest, OnlyAStepBackIsTold) {
  WallClockSteps steps;
  absl::Time monotonic = kStart;
  absl::Time wall = absl::FromUnixSeconds(1700000000);
  const auto tick = [&](absl::Duration step) {
    monotonic += kTick;
    wall += kTick + step;
    return steps.SetBack(wall, monotonic);
  };
  EXPECT_FALSE(tick({})) << "nothing to compare with yet";
  EXPECT_FALSE(tick({}));
  EXPECT_TRUE(tick(-absl::Hours(1)));
  EXPECT_FALSE(tick({})) << "told once";
  EXPECT_FALSE(tick(absl::Hours(2)));
  EXPECT_TRUE(tick(-absl::Seconds(1))) << "also of a clock that is ahead";
  EXPECT_FALSE(tick(-absl::Milliseconds(1))) << "adjusted slowly";
}

TEST(WallClockStepsTest, AStalledProcessIsNoStep) {
  WallClockSteps steps;
  const absl::Time wall = absl::FromUnixSeconds(1700000000);
  EXPECT_FALSE(steps.SetBack(wall, kStart));
  EXPECT_FALSE(
      steps.SetBack(wall + absl::Minutes(5), kStart + absl::Minutes(5)));
}

}  // namespace
}  // namespace syncline
