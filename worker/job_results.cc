#include "worker/job_results.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"

namespace syncline {

absl::StatusOr<std::string> ExportModel(const PreparedJob& job,
                                        const DenseTables& tables) {
  absl::flat_hash_map<std::string, absl::Span<const float>> weights;
  const auto& parameters = job.training.parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    weights[parameters[i].name] = job.executor->parameter(static_cast<int>(i));
  }
  std::vector<std::string> inputs;
  for (size_t t = 0; t < tables.size(); ++t) {
    const std::string& name = job.training.tables[t].name;
    if (tables[t].has_value()) {
      weights[name] = *tables[t];
    } else {
      inputs.push_back(name);
    }
  }
  return job.model->WithWeights(weights, inputs);
}

absl::StatusOr<std::string> MetricsJson(
    const std::string& job_id, const std::vector<Evaluation>& evaluations,
    const WorkerProgress& totals) {
  JobStatus status;
  status.set_job_id(job_id);
  *status.mutable_progress()->add_workers() = totals;
  for (const Evaluation& evaluation : evaluations) {
    *status.add_evaluations() = evaluation;
  }
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto printed =
      google::protobuf::util::MessageToJsonString(status, &json, options);
  if (!printed.ok()) {
    return absl::InternalError(
        absl::StrCat("metrics.json: ", printed.ToString()));
  }
  return json;
}

}  // namespace syncline
