#ifndef SYNCLINE_WORKER_EXPORT_JOB_RESULTS_H_
#define SYNCLINE_WORKER_EXPORT_JOB_RESULTS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/job/prepared_job.h"

namespace syncline::worker {

// Trained tables, by JobSpec.tables index: those that are a tensor of the
// model; the rest stay graph inputs of it.
using DenseTables = std::vector<std::optional<std::vector<float>>>;

// Writes the submitted model with the executor's current parameters and these
// tables as ONNX binary.
absl::Status ExportModel(const PreparedJob& job, const DenseTables& tables,
                         const std::string& path);

// The float32 weights of that model, tables among them, as a safetensors file.
absl::Status WriteWeights(const PreparedJob& job, const DenseTables& tables,
                          const std::string& path);

// metrics.json: a JobStatus in JSON with job_id, evaluations and, as
// `progress.workers[0]`, the chief's totals; null where the evaluator writes
// it, which has none. Every loss is there, 0 too. JSON has no numbers that are
// not finite: they are the strings "NaN", "Infinity" and "-Infinity".
// `skipped`: AskSkippedCounts; `progress` has what is not 0 of it.
absl::StatusOr<std::string> MetricsJson(
    const std::string& job_id, absl::Span<const Evaluation> evaluations,
    const WorkerProgress* totals, const JobProgress& skipped = {});

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EXPORT_JOB_RESULTS_H_
