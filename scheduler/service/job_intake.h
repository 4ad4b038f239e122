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
  std::string client_key = {};  // SubmitBegin's; of a tenant: ScopedClientKey
  std::string tenant = {};      // JobStatus.tenant
  std::string trace_id = {};    // SubmitBegin's; empty: the scheduler makes one
};

// Checks a job as a whole, model and weights included, before anything starts.
// Takes as long as parsing the model. `weights_path`: the file of
// start.weights, as it has come; empty: none has. Errors: InvalidArgument with
// all problems, a line each: those of the spec, of how it fits the model, and
// of the model.
absl::StatusOr<CheckedJob> CheckJob(const JobSpec& spec,
                                    absl::string_view model_bytes,
                                    const std::string& weights_path = "");

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_JOB_INTAKE_H_
