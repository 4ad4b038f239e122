#ifndef SYNCLINE_COMMON_JOB_STEP_LIMITS_H_
#define SYNCLINE_COMMON_JOB_STEP_LIMITS_H_

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

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_STEP_LIMITS_H_
