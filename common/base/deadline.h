#ifndef SYNCLINE_COMMON_BASE_DEADLINE_H_
#define SYNCLINE_COMMON_BASE_DEADLINE_H_

// A deadline is an absl::Time that travels from a call to all that it calls;
// infinite ones do not exist outside of tests.

#include <algorithm>

#include "absl/time/time.h"

namespace syncline {

// Never negative.
inline absl::Duration TimeLeft(absl::Time deadline, absl::Time now) {
  return std::max(deadline - now, absl::ZeroDuration());
}

// For a step of a larger call: `step` from now, but not later than the call's.
inline absl::Time StepDeadline(absl::Time deadline, absl::Time now,
                               absl::Duration step) {
  return std::min(deadline, now + step);
}

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_DEADLINE_H_
