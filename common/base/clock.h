#ifndef SYNCLINE_COMMON_BASE_CLOCK_H_
#define SYNCLINE_COMMON_BASE_CLOCK_H_

#include <chrono>

#include "absl/time/time.h"

namespace syncline {

// The time that decides: deadlines, leases, time-outs and durations are counted
// in it. It begins as the wall clock when the process first asks, and from then
// on it follows the monotonic clock, so setting the wall clock does not move
// it. Its values mean nothing to another process. absl::Now() is for
// records and logs only (tests/lint/clocks.py). Pure cores get `now` as an
// argument instead. Thread-safe. (A training step is also called a clock; that
// one is an int64_t named `clock`.)
absl::Time MonotonicNow();

// The same moments, as the standard library's waits want them.
std::chrono::steady_clock::time_point ToSteadyTime(absl::Time monotonic);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_CLOCK_H_
