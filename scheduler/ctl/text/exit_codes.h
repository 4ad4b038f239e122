#ifndef SYNCLINE_SCHEDULER_CTL_TEXT_EXIT_CODES_H_
#define SYNCLINE_SCHEDULER_CTL_TEXT_EXIT_CODES_H_

#include "absl/status/status.h"
#include "common/base/exit_codes.h"
#include "proto/job.pb.h"

namespace syncline::ctl {

// synctl's exit codes. `synctl --help` shows the same table.
inline constexpr int kExitOk = 0;
// The job failed for good, or what was asked is wrong: a bad job file, an
// unknown job, an unusable configuration.
using syncline::kExitFailed;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitUnreachable = 3;
// By the user, or Ctrl-C.
inline constexpr int kExitCancelled = 130;
// Worth a retry: a process of the cluster was lost, or the queue is full.
using syncline::kExitRetryable;

// Of a call that failed (or not).
int ExitCodeOf(const absl::Status& status);

// Of a job in a final state.
int ExitCodeOf(const JobStatus& job);

bool HasEnded(JobState state);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_TEXT_EXIT_CODES_H_
