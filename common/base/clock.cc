#include "common/base/clock.h"

#include <algorithm>

#include "absl/time/clock.h"

namespace syncline {
namespace {

using Steady = std::chrono::steady_clock;

// Keeps what is computed from a time within what the clock's type can hold.
constexpr absl::Duration kFarMax = absl::Hours(24 * 365);

absl::Duration SteadyNow() {
  return absl::FromChrono(Steady::now().time_since_epoch());
}

// The wall clock's time at the monotonic clock's zero.
absl::Time Origin() {
  static const absl::Time origin = absl::Now() - SteadyNow();
  return origin;
}

}  // namespace

absl::Time MonotonicNow() {
  const absl::Time origin = Origin();
  return origin + SteadyNow();
}

Steady::time_point ToSteadyTime(absl::Time monotonic) {
  const absl::Duration now = SteadyNow();
  const absl::Duration at =
      std::clamp(monotonic - Origin(), now - kFarMax, now + kFarMax);
  return Steady::time_point(absl::ToChronoNanoseconds(at));
}

}  // namespace syncline
