#include "worker/retry_policy.h"

#include "common/base/backoff.h"

namespace syncline {
namespace {

// From a few small round trips up to what a person would call at once.
constexpr Backoff kBackoff = {.initial = absl::Milliseconds(10),
                              .max = absl::Seconds(1)};

}  // namespace

RetryPolicy::RetryPolicy(absl::Time now, absl::Duration patience,
                         uint64_t jitter_seed)
    : patience_(patience), deadline_(now + patience), jitter_(jitter_seed) {}

RetryPolicy::Decision RetryPolicy::OnResult(absl::StatusCode code,
                                            absl::Time now) {
  ++attempts_;
  switch (code) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted: {
      const absl::Duration delay =
          BackoffDelay(kBackoff, retries_++, jitter_.Uniform());
      if (now + delay >= deadline_) return {};
      return {Next::kResend, delay};
    }
    case absl::StatusCode::kDeadlineExceeded:
      return {Next::kProbe, absl::ZeroDuration()};
    default:
      return {};
  }
}

RetryPolicy::Decision RetryPolicy::OnProbe(absl::string_view standing,
                                           absl::Time now) {
  const bool moved =
      !standing_.empty() && !standing.empty() && standing_ != standing;
  if (!standing.empty()) standing_ = std::string(standing);
  if (moved) deadline_ = now + patience_;
  // An attempt that could only overrun the deadline is not worth starting.
  if (now + patience_ / 8 >= deadline_) return {};
  return {Next::kResend, absl::ZeroDuration()};
}

}  // namespace syncline
