#ifndef SYNCLINE_COMMON_BASE_BACKOFF_H_
#define SYNCLINE_COMMON_BASE_BACKOFF_H_

#include "absl/time/time.h"

namespace syncline {

// How long to wait between attempts: exponential, capped, with jitter so that
// the members of a cluster do not come back all at once.
struct Backoff {
  absl::Duration initial = absl::Milliseconds(100);
  absl::Duration max = absl::Seconds(5);
  double multiplier = 2;  // >= 1
  double jitter = 0.5;    // [0, 1]: the share of the wait that is random
};

// The wait after attempt number `attempt` (from 0; negative counts as 0) has
// failed: min(max, initial * multiplier^attempt), less up to `jitter` of it.
// `random` is uniform in [0, 1). Pure.
absl::Duration BackoffDelay(const Backoff& backoff, int attempt, double random);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_BACKOFF_H_
