#include "worker/client/transport/retry_policy.h"

#include <algorithm>

#include "common/base/backoff.h"

namespace syncline::worker {
namespace {

// From a few small round trips up to what a person would call at once.
constexpr Backoff kBackoff = {.initial = absl::Milliseconds(10),
                              .max = absl::Seconds(1)};

// The shortest attempt, as a part of the patience: long enough for an answer
// that is on its way.
constexpr int kShortestAttemptPart = 16;

}  // namespace

RetryPolicy::RetryPolicy(absl::Time now, absl::Duration patience,
                         uint64_t jitter_seed)
    : patience_(patience),
      deadline_(now + patience),
      reached_(now),
      jitter_(jitter_seed) {}

absl::Duration RetryPolicy::NextAttempt(absl::Time now) {
  const absl::Duration longest =
      std::clamp(deadline_ - now, patience_ / kShortestAttemptPart,
                 LongestAttempt(patience_));
  attempt_end_ = now + longest;
  return longest;
}

void RetryPolicy::SkipFrozen(absl::Time now) {
  const absl::Duration late = now - attempt_end_ - kLateMax;
  attempt_end_ = absl::InfiniteFuture();
  if (late > absl::ZeroDuration()) LeaveOut(late);
}

void RetryPolicy::LeaveOut(absl::Duration time) {
  deadline_ += time;
  reached_ += time;
}

RetryPolicy::Decision RetryPolicy::OnResult(absl::StatusCode code,
                                            absl::Time now) {
  ++attempts_;
  SkipFrozen(now);
  switch (code) {
    case absl::StatusCode::kUnavailable: {
      const absl::Duration delay =
          BackoffDelay(kBackoff, retries_++, jitter_.Uniform());
      if (now + delay >= std::max(deadline_, reached_ + patience_)) return {};
      return {Next::kResend, delay};
    }
    case absl::StatusCode::kResourceExhausted: {
      reached_ = now;  // only the ps itself says so
      const absl::Duration delay =
          BackoffDelay(kBackoff, retries_++, jitter_.Uniform());
      if (now >= deadline_) return {Next::kProbe};
      return {Next::kResend, std::min(delay, deadline_ - now)};
    }
    case absl::StatusCode::kDeadlineExceeded:
      // The ps itself ended the wait. Past the deadline only a probe counts, so
      // that the wait ends where none gets through.
      if (now < deadline_) reached_ = now;
      return {now < deadline_ ? Next::kResend : Next::kProbe};
    default:
      return {};
  }
}

RetryPolicy::Decision RetryPolicy::OnUnanswered(absl::Time now) {
  ++attempts_;
  SkipFrozen(now);
  return {Next::kProbe};
}

RetryPolicy::Decision RetryPolicy::OnProbe(std::optional<absl::Duration> quiet,
                                           absl::Time now) {
  if (quiet.has_value()) {
    reached_ = now;
    deadline_ = std::max(deadline_, now - *quiet + patience_);
    return {now < deadline_ ? Next::kResend : Next::kFinish};
  }
  if (now >= reached_ + patience_) return {};
  return {Next::kResend, BackoffDelay(kBackoff, retries_++, jitter_.Uniform())};
}

}  // namespace syncline::worker
