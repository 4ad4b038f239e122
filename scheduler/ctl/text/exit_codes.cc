#include "scheduler/ctl/text/exit_codes.h"

namespace syncline::ctl {

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitUnreachable;
    case absl::StatusCode::kCancelled:
      return kExitCancelled;
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kAborted:  // told to stop, not lost
      return kExitRetryable;
    default:
      return kExitFailed;
  }
}

int ExitCodeOf(const JobStatus& job) {
  switch (job.state()) {
    case SUCCEEDED:
      return kExitOk;
    case CANCELLED:
      return kExitCancelled;
    default:
      return job.exit_code() != 0 ? job.exit_code() : kExitFailed;
  }
}

bool HasEnded(JobState state) {
  return state == SUCCEEDED || state == FAILED || state == CANCELLED;
}

}  // namespace syncline::ctl
