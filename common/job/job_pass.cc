#include "common/job/job_pass.h"

#include "absl/strings/str_cat.h"
#include "common/system/secret.h"

namespace syncline {

JobPass PassOf(const JobAssignment& assignment) {
  return {assignment.attempt(), assignment.job_secret()};
}

absl::Status CheckAssignmentPass(const JobAssignment& assignment) {
  if (assignment.attempt() > 0 && !assignment.job_secret().empty()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the assignment of job ", assignment.job_id(), " has no ",
                   assignment.attempt() == 0 ? "attempt" : "job_secret",
                   ": is the scheduler of the same version as this daemon?"));
}

absl::Status CheckPass(const JobPass& own, absl::string_view label,
                       uint32_t attempt, absl::string_view secret) {
  if (attempt != own.attempt) {
    return absl::FailedPreconditionError(
        absl::StrCat(label, ": the caller is of attempt ", attempt,
                     ", this is attempt ", own.attempt));
  }
  if (!SecretsEqual(own.secret, secret)) {
    return absl::PermissionDeniedError(
        absl::StrCat(label, ": the caller does not show the secret of attempt ",
                     own.attempt));
  }
  return absl::OkStatus();
}

}  // namespace syncline
