#include "common/base/slewed_clock.h"

#include <algorithm>
#include <chrono>

#include "absl/time/clock.h"

namespace syncline {

absl::Time SlewedClock::Now() {
  MutexLock lock(&mu_);
  // Read under the lock: a later caller gets a later time.
  const absl::Duration steady =
      absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  now_ = started_ ? Follow(now_, absl::Now(), steady - steady_) : absl::Now();
  started_ = true;
  steady_ = steady;
  return now_;
}

absl::Time SlewedClock::Follow(absl::Time now, absl::Time wall,
                               absl::Duration passed) {
  const absl::Duration awake = std::min(passed, kGapMax);
  const absl::Time expected = now + awake;
  const absl::Duration slew = awake * kSlew;
  return std::clamp(wall, expected - slew, expected + slew);
}

}  // namespace syncline
