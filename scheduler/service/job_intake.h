#ifndef SYNCLINE_SCHEDULER_SERVICE_JOB_INTAKE_H_
#define SYNCLINE_SCHEDULER_SERVICE_JOB_INTAKE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"
#include "proto/job_spec.pb.h"

namespace syncline::scheduler {

// A job that may be queued.
struct CheckedJob {
  JobSpec spec;  // with defaults
  std::vector<ParameterInfo> parameters;
  std::vector<TableInfo> tables;
  std::string client_key = {};  // SubmitBegin's
};

// Checks a job as a whole, model included, before anything starts. Takes as
// long as parsing the model. Errors: InvalidArgument with all problems, a line
// each: those of the spec, of how it fits the model, and of the model.
absl::StatusOr<CheckedJob> CheckJob(const JobSpec& spec,
                                    absl::string_view model_bytes);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_JOB_INTAKE_H_
