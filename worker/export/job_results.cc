#include "worker/export/job_results.h"

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"
#include "worker/export/tensors_file.h"

namespace syncline::worker {

namespace {

// By name: what training has changed.
absl::flat_hash_map<std::string, absl::Span<const float>> TrainedWeights(
    const PreparedJob& job, const DenseTables& tables) {
  absl::flat_hash_map<std::string, absl::Span<const float>> weights;
  const auto& parameters = job.training.parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    weights[parameters[i].name] = job.executor->parameter(static_cast<int>(i));
  }
  for (size_t t = 0; t < tables.size(); ++t) {
    if (tables[t].has_value()) {
      weights[job.training.tables[t].name] = *tables[t];
    }
  }
  return weights;
}

// Tables that stay graph inputs.
std::vector<std::string> OpenTables(const PreparedJob& job,
                                    const DenseTables& tables) {
  std::vector<std::string> names;
  for (size_t t = 0; t < tables.size(); ++t) {
    if (!tables[t].has_value()) names.push_back(job.training.tables[t].name);
  }
  return names;
}

}  // namespace

absl::Status ExportModel(const PreparedJob& job, const DenseTables& tables,
                         const std::string& path) {
  return job.model->WriteWithWeights(path, TrainedWeights(job, tables),
                                     OpenTables(job, tables));
}

absl::Status WriteWeights(const PreparedJob& job, const DenseTables& tables,
                          const std::string& path) {
  const auto trained = TrainedWeights(job, tables);
  const std::vector<std::string> open = OpenTables(job, tables);
  const Graph& graph = job.model->graph();
  std::vector<NamedTensor> tensors;
  for (const Initializer& initializer : graph.initializers) {
    const Value& value = graph.values[initializer.value];
    const ConstantTensor& tensor = initializer.tensor;
    if (value.dtype != DType::kFloat32 ||
        initializer.origin == Initializer::Origin::kConstant ||
        absl::c_linear_search(open, value.name)) {
      continue;
    }
    const auto found = trained.find(value.name);
    tensors.push_back(
        {.name = value.name,
         .dims = value.dims,
         .values = found == trained.end() ? tensor.floats() : found->second});
  }
  return WriteTensors(path, tensors);
}

absl::StatusOr<std::string> MetricsJson(
    const std::string& job_id, absl::Span<const Evaluation> evaluations,
    const WorkerProgress* totals, const JobProgress& skipped) {
  JobStatus status;
  status.set_job_id(job_id);
  if (skipped.skipped_clocks() > 0 || skipped.dropped_blocks() > 0) {
    *status.mutable_progress() = skipped;
  }
  if (totals != nullptr) *status.mutable_progress()->add_workers() = *totals;
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

}  // namespace syncline::worker
