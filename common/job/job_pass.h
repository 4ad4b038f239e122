#ifndef SYNCLINE_COMMON_JOB_JOB_PASS_H_
#define SYNCLINE_COMMON_JOB_JOB_PASS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"

namespace syncline {

// A member of one attempt of a job shows this to the others, in every call on
// behalf of the job. The scheduler gave it to the members alone.
struct JobPass {
  uint32_t attempt = 0;  // JobAssignment.attempt
  // JobAssignment.job_secret; never logged, and stored by the scheduler alone.
  std::string secret;
};

JobPass PassOf(const JobAssignment& assignment);

// Errors: InvalidArgument: the assignment lacks an attempt or a secret, as one
// of another version would.
absl::Status CheckAssignmentPass(const JobAssignment& assignment);

// OK if the caller of an attempt with the pass `own` shows the same. `label`
// ("job j-0001 on ps:0 at 10.0.0.5:4000") is for messages, which never have a
// secret. Errors: FailedPrecondition: of another attempt; PermissionDenied: the
// secret is another one, or none.
absl::Status CheckPass(const JobPass& own, absl::string_view label,
                       uint32_t attempt, absl::string_view secret);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_JOB_PASS_H_
