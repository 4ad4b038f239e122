#include "common/base/backoff.h"

#include <algorithm>
#include <cmath>

namespace syncline {

absl::Duration BackoffDelay(const Backoff& backoff, int attempt,
                            double random) {
  const double factor = std::pow(backoff.multiplier, std::max(attempt, 0));
  // A factor that has overflowed to infinity gives an infinite duration, which
  // the cap takes care of.
  const absl::Duration wait = std::min(backoff.max, backoff.initial * factor);
  return wait * (1 - backoff.jitter * random);
}

}  // namespace syncline
