#ifndef SYNCLINE_COMMON_JOB_JOB_SPEC_VALIDATOR_H_
#define SYNCLINE_COMMON_JOB_JOB_SPEC_VALIDATOR_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// Reads protobuf text format or JSON (a first non-space '{' means JSON).
// Errors: InvalidArgument with "label:line:column: message" for each field that
// is unknown or has a value that cannot be; job_spec_parser.h has the rest of
// such a job.
absl::StatusOr<JobSpec> ParseJobSpec(absl::string_view text,
                                     absl::string_view label);

// Everything that is wrong with the spec itself, one entry per problem, each
// "field.path: what, accepted range": ranges, non-finite numbers, values that
// are not built yet (named as such), fields that contradict each other. Empty:
// valid. Does not look at files.
std::vector<std::string> ValidateJobSpec(const JobSpec& spec);

// The spec with every default written out, so that no reader needs to know one.
// An invalid field stays invalid.
JobSpec WithDefaults(const JobSpec& spec);

// All problems as one status: OK, or InvalidArgument with a line each.
absl::Status ProblemsToStatus(const std::vector<std::string>& problems);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_JOB_SPEC_VALIDATOR_H_
