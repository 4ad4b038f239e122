#ifndef SYNCLINE_WORKER_JOB_RESULTS_H_
#define SYNCLINE_WORKER_JOB_RESULTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/prepared_job.h"

namespace syncline {

// The submitted model with the executor's current parameters, as ONNX binary.
absl::StatusOr<std::string> ExportModel(const PreparedJob& job);

// metrics.json: a JobStatus in JSON with job_id, evaluations and, as
// `progress.workers[0]`, the chief's totals.
absl::StatusOr<std::string> MetricsJson(
    const std::string& job_id, const std::vector<Evaluation>& evaluations,
    const WorkerProgress& totals);

}  // namespace syncline

#endif  // SYNCLINE_WORKER_JOB_RESULTS_H_
