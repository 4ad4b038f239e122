#ifndef SYNCLINE_TESTS_TESTING_EVENTUALLY_H_
#define SYNCLINE_TESTS_TESTING_EVENTUALLY_H_

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace syncline {

// Asks `condition` until it says true or `timeout` has passed; returns its last
// answer. The one place where a test waits for another process: conditions of
// other processes cannot be waited for otherwise.
template <typename Condition>
bool Eventually(absl::Duration timeout, const Condition& condition) {
  const absl::Time deadline = absl::Now() + timeout;
  for (;;) {
    if (condition()) return true;
    if (absl::Now() >= deadline) return false;
    absl::SleepFor(absl::Milliseconds(20));
  }
}

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_EVENTUALLY_H_
