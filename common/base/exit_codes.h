#ifndef SYNCLINE_COMMON_BASE_EXIT_CODES_H_
#define SYNCLINE_COMMON_BASE_EXIT_CODES_H_

namespace syncline {

// How a daemon's process and a job (JobStatus.exit_code) end, besides 0.

// Failed for good: another try fails in the same way.
inline constexpr int kExitFailed = 1;
// Worth a retry: a process of the cluster was lost.
inline constexpr int kExitRetryable = 138;

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_EXIT_CODES_H_
