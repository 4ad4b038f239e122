#ifndef SYNCLINE_COMMON_JOB_STEP_LIMITS_H_
#define SYNCLINE_COMMON_JOB_STEP_LIMITS_H_

#include <algorithm>

#include "absl/time/time.h"

namespace syncline {

// LimitsSpec.step_timeout_seconds (proto/job_spec.proto). The minimum is longer
// than a round trip on a busy host; the maximum is a day.
inline constexpr double kStepTimeoutSecondsMin = 0.1;
inline constexpr double kStepTimeoutSecondsMax = 24 * 60 * 60;

// Limits of a ps that follow from it: a call waits for a step timeout at most
// (PullHeader.wait_seconds), and a cut is held for kHoldTimeouts of them unless
// rows are read under it (BeginCutRequest.hold_seconds).
inline constexpr double kWaitSecondsMax = kStepTimeoutSecondsMax;
inline constexpr int kHoldTimeouts = 4;
inline constexpr double kHoldSecondsMax =
    kHoldTimeouts * kStepTimeoutSecondsMax;

// How long a worker that has made its last step waits for a checkpoint that is
// still being written. A scheduler takes a worker for hung that has not come
// forward in ten step timeouts, ten seconds at least.
inline absl::Duration LastCheckpointWaitMax(absl::Duration step_timeout) {
  return std::max(absl::Seconds(8), 8 * step_timeout);
}

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_STEP_LIMITS_H_
