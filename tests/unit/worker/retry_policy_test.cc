// Goal: a call to a ps is repeated exactly as long as repeating can help, and
// every call ends.
// Method: the policy is fed results at invented times.

#include "worker/retry_policy.h"

#include "gtest/gtest.h"

namespace syncline {
namespace {

using Next = RetryPolicy::Next;

const absl::Time kStart = absl::FromUnixSeconds(1000);
constexpr absl::Duration kPatience = absl::Seconds(60);

TEST(RetryPolicyTest, WhatNoRepetitionMendsEndsAtOnce) {
  for (const absl::StatusCode code :
       {absl::StatusCode::kOk, absl::StatusCode::kFailedPrecondition,
        absl::StatusCode::kInvalidArgument, absl::StatusCode::kAborted,
        absl::StatusCode::kCancelled, absl::StatusCode::kInternal,
        absl::StatusCode::kUnimplemented}) {
    RetryPolicy policy(kStart, kPatience, 1);
    EXPECT_EQ(policy.OnResult(code, kStart).next, Next::kFinish)
        << absl::StatusCodeToString(code);
  }
}

TEST(RetryPolicyTest, BackoffGrowsIsCappedAndEndsWithThePatience) {
  RetryPolicy policy(kStart, kPatience, 1);
  absl::Time now = kStart;
  absl::Duration largest;
  int retries = 0;
  while (true) {
    const auto decision = policy.OnResult(absl::StatusCode::kUnavailable, now);
    if (decision.next == Next::kFinish) break;
    ASSERT_EQ(decision.next, Next::kResend);
    ASSERT_GT(decision.delay, absl::ZeroDuration());
    ASSERT_LE(decision.delay, absl::Seconds(1));
    largest = std::max(largest, decision.delay);
    now += decision.delay;
    ++retries;
    ASSERT_LT(retries, 1000);
  }
  EXPECT_GT(largest, absl::Milliseconds(400));
  EXPECT_LT(now, kStart + kPatience);
  EXPECT_GT(now, kStart + kPatience - absl::Seconds(1.1));
  EXPECT_EQ(policy.attempts(), retries + 1);
}

TEST(RetryPolicyTest, JitterDiffersBetweenCalls) {
  RetryPolicy a(kStart, kPatience, 1);
  RetryPolicy b(kStart, kPatience, 2);
  EXPECT_NE(a.OnResult(absl::StatusCode::kUnavailable, kStart).delay,
            b.OnResult(absl::StatusCode::kUnavailable, kStart).delay);
}

TEST(RetryPolicyTest, NobodyMovesSoTheWaitEndsAfterThePatience) {
  RetryPolicy policy(kStart, kPatience, 1);
  absl::Time now = kStart + RetryPolicy::AttemptWait(kPatience);
  ASSERT_EQ(policy.OnResult(absl::StatusCode::kDeadlineExceeded, now).next,
            Next::kProbe);
  ASSERT_EQ(policy.OnProbe("3+0", now).next, Next::kResend);
  now += RetryPolicy::AttemptWait(kPatience);
  ASSERT_EQ(policy.OnResult(absl::StatusCode::kDeadlineExceeded, now).next,
            Next::kProbe);
  EXPECT_EQ(policy.OnProbe("3+0", now).next, Next::kFinish);
}

TEST(RetryPolicyTest, ASlowWorkerIsWaitedForUntilItStops) {
  RetryPolicy policy(kStart, kPatience, 1);
  absl::Time now = kStart;
  for (int clock = 0; clock < 100; ++clock) {
    now += RetryPolicy::AttemptWait(kPatience);
    ASSERT_EQ(policy.OnResult(absl::StatusCode::kDeadlineExceeded, now).next,
              Next::kProbe);
    ASSERT_EQ(policy.OnProbe(std::to_string(clock), now).next, Next::kResend)
        << clock;
  }
  // It moves no more: two attempts later the patience is over.
  now += RetryPolicy::AttemptWait(kPatience);
  ASSERT_EQ(policy.OnProbe("99", now).next, Next::kResend);
  now += RetryPolicy::AttemptWait(kPatience);
  EXPECT_EQ(policy.OnProbe("99", now).next, Next::kFinish);
}

TEST(RetryPolicyTest, AShardThatCannotBeAskedShowsNoProgress) {
  RetryPolicy policy(kStart, kPatience, 1);
  absl::Time now = kStart + RetryPolicy::AttemptWait(kPatience);
  ASSERT_EQ(policy.OnProbe("5", now).next, Next::kResend);
  now += RetryPolicy::AttemptWait(kPatience);
  EXPECT_EQ(policy.OnProbe("", now).next, Next::kFinish);
}

}  // namespace
}  // namespace syncline
