// Goal: a call to a ps is repeated exactly as long as repeating can help, and
// every call ends.
// Method: the policy is fed results at invented times.

#include "worker/client/transport/retry_policy.h"

#include "gtest/gtest.h"

namespace syncline::worker {
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

// One attempt that waits as long as it may and hears that others are missing.
RetryPolicy::Decision WaitInVain(RetryPolicy* policy, absl::Time* now) {
  *now += policy->NextAttempt(*now);
  return policy->OnResult(absl::StatusCode::kDeadlineExceeded, *now);
}

// The attempt could not end in time, because this process did not run; nor
// could the others have been heard.
TEST(RetryPolicyTest, TimeInWhichTheProcessWasFrozenDoesNotCount) {
  for (const absl::StatusCode code :
       {absl::StatusCode::kDeadlineExceeded, absl::StatusCode::kUnavailable}) {
    RetryPolicy policy(kStart, kPatience, 1);
    absl::Time now = kStart + policy.NextAttempt(kStart) + absl::Minutes(10);
    EXPECT_EQ(policy.OnResult(code, now).next, Next::kResend);
    // Half of the patience is left, and what a busy host may be late.
    now += kPatience / 2 + RetryPolicy::kLateMax + absl::Seconds(1);
    EXPECT_NE(policy.OnResult(code, now).next, Next::kResend);
  }
}

TEST(RetryPolicyTest, NobodyMovesSoTheWaitEndsWithThePatience) {
  RetryPolicy policy(kStart, kPatience, 1);
  absl::Time now = kStart;
  ASSERT_EQ(WaitInVain(&policy, &now).next, Next::kResend);
  ASSERT_EQ(WaitInVain(&policy, &now).next, Next::kProbe);
  EXPECT_EQ(now, kStart + kPatience);
  EXPECT_EQ(policy.OnProbe(now - kStart, now).next, Next::kFinish);
}

TEST(RetryPolicyTest, ASlowWorkerIsWaitedForUntilItStops) {
  RetryPolicy policy(kStart, kPatience, 1);
  absl::Time now = kStart;
  absl::Time moved = kStart;
  for (int clock = 0; clock < 100; ++clock) {
    while (WaitInVain(&policy, &now).next != Next::kProbe) {
    }
    moved = now - kPatience * 0.9;
    ASSERT_EQ(policy.OnProbe(now - moved, now).next, Next::kResend) << clock;
  }
  while (WaitInVain(&policy, &now).next != Next::kProbe) {
  }
  EXPECT_EQ(policy.OnProbe(now - moved, now).next, Next::kFinish);
  // As late as the shortest attempt makes it, and no later.
  EXPECT_GE(now, moved + kPatience);
  EXPECT_LE(now, moved + kPatience * 1.1);
}

// Its steps take nearly the patience each, and the wait begins in the middle of
// one: whatever the phase, it is not called dead.
TEST(RetryPolicyTest, AStepJustShorterThanThePatienceIsWaitedFor) {
  const absl::Duration step = kPatience * 0.99;
  for (double phase = 0; phase < 1; phase += 0.05) {
    RetryPolicy policy(kStart, kPatience, 1);
    const absl::Time first_move = kStart + phase * step;
    absl::Time now = kStart;
    while (now < kStart + 10 * kPatience) {
      const RetryPolicy::Decision decision = WaitInVain(&policy, &now);
      if (decision.next == Next::kResend) continue;
      ASSERT_EQ(decision.next, Next::kProbe);
      const absl::Duration since = now - first_move;
      const absl::Duration quiet = since - absl::Floor(since, step);
      ASSERT_EQ(policy.OnProbe(quiet, now).next, Next::kResend)
          << "phase " << phase << ", " << now - kStart;
    }
  }
}

TEST(RetryPolicyTest, AFullShardIsAskedBeforeItIsGivenUp) {
  RetryPolicy policy(kStart, kPatience, 1);
  absl::Time now = kStart;
  const auto refuse_until_probe = [&] {
    while (true) {
      const auto decision =
          policy.OnResult(absl::StatusCode::kResourceExhausted, now);
      if (decision.next == Next::kProbe) return;
      ASSERT_EQ(decision.next, Next::kResend);
      ASSERT_GT(decision.delay, absl::ZeroDuration());
      now += decision.delay;
    }
  };
  for (int i = 0; i < 10; ++i) {
    refuse_until_probe();
    ASSERT_EQ(policy.OnProbe(absl::Seconds(1), now).next, Next::kResend);
  }
  EXPECT_GT(now, kStart + 9 * kPatience);
  refuse_until_probe();
  EXPECT_EQ(policy.OnProbe(kPatience * 2, now).next, Next::kFinish);
}

// Other calls to the ps went first.
TEST(RetryPolicyTest, TheWaitForARepetitionsTurnDoesNotCount) {
  RetryPolicy policy(kStart, kPatience, 1);
  absl::Time now = kStart + absl::Seconds(1);
  ASSERT_EQ(policy.OnResult(absl::StatusCode::kUnavailable, now).next,
            Next::kResend);
  now += 2 * kPatience;
  policy.OnHeldBack(2 * kPatience);
  EXPECT_EQ(policy.NextAttempt(now), RetryPolicy::LongestAttempt(kPatience));
  now += absl::Seconds(1);
  EXPECT_EQ(policy.OnResult(absl::StatusCode::kUnavailable, now).next,
            Next::kResend);
  now += kPatience;
  EXPECT_EQ(policy.OnResult(absl::StatusCode::kUnavailable, now).next,
            Next::kFinish);
}

TEST(RetryPolicyTest, AFullShardWasReached) {
  RetryPolicy policy(kStart, kPatience, 1);
  absl::Time now = kStart + kPatience * 0.9;
  ASSERT_EQ(policy.OnResult(absl::StatusCode::kResourceExhausted, now).next,
            Next::kResend);
  // A network that is away for a moment just when the patience ends.
  now = kStart + kPatience;
  EXPECT_EQ(policy.OnResult(absl::StatusCode::kUnavailable, now).next,
            Next::kResend);
  now = kStart + kPatience * 1.95;
  EXPECT_EQ(policy.OnResult(absl::StatusCode::kUnavailable, now).next,
            Next::kFinish);
}

TEST(RetryPolicyTest, AShardThatNeverAnswersIsGivenUpWithThePatience) {
  RetryPolicy policy(kStart, kPatience, 1);
  absl::Time now = kStart;
  RetryPolicy::Decision decision;
  do {
    now += policy.NextAttempt(now);
    ASSERT_EQ(policy.OnUnanswered(now).next, Next::kProbe);
    decision = policy.OnProbe(std::nullopt, now);
  } while (decision.next == Next::kResend);
  EXPECT_EQ(now, kStart + kPatience);
}

// The ps ended each wait itself, so one probe that is lost on a busy host does
// not prove that the ps is gone.
TEST(RetryPolicyTest, AShardThatHasJustAnsweredIsProbedAgain) {
  RetryPolicy policy(kStart, kPatience, 1);
  absl::Time now = kStart;
  while (WaitInVain(&policy, &now).next != Next::kProbe) {
  }
  ASSERT_EQ(policy.OnProbe(std::nullopt, now).next, Next::kResend);
  ASSERT_EQ(WaitInVain(&policy, &now).next, Next::kProbe);
  EXPECT_EQ(policy.OnProbe(now - kStart, now).next, Next::kFinish);
}

// A network that swallows everything: the ps is asked long before it is given
// up, so that it can be reported as out of reach.
TEST(RetryPolicyTest, AnUnansweredAttemptIsFollowedByAProbe) {
  RetryPolicy policy(kStart, kPatience, 1);
  absl::Time now = kStart + policy.NextAttempt(kStart) + kPatience / 8;
  ASSERT_EQ(policy.OnUnanswered(now).next, Next::kProbe);
  now += kPatience / 8;
  EXPECT_LT(now, kStart + kPatience);
  ASSERT_EQ(policy.OnProbe(std::nullopt, now).next, Next::kResend);
  now += policy.NextAttempt(now) + kPatience / 8;
  ASSERT_EQ(policy.OnUnanswered(now).next, Next::kProbe);
  EXPECT_EQ(policy.OnProbe(std::nullopt, now + kPatience / 8).next,
            Next::kFinish);
}

TEST(RetryPolicyTest, AProbeThatFailsOnceProvesNothing) {
  RetryPolicy policy(kStart, kPatience, 1);
  absl::Time now = kStart + kPatience;
  ASSERT_EQ(policy.OnProbe(kPatience * 0.9, now).next, Next::kResend);
  now += kPatience * 0.1;
  EXPECT_EQ(policy.OnProbe(std::nullopt, now).next, Next::kResend);
  // Out of reach for as long as the patience.
  now += kPatience * 0.85;
  EXPECT_EQ(policy.OnResult(absl::StatusCode::kUnavailable, now).next,
            Next::kResend);
  now += kPatience * 0.1;
  EXPECT_EQ(policy.OnResult(absl::StatusCode::kUnavailable, now).next,
            Next::kFinish);
}

}  // namespace
}  // namespace syncline::worker
