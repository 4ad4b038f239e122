#include "scheduler/service/job_intake.h"

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/job/job_spec_validator.h"
#include "common/job/start_validator.h"
#include "common/model/job_check.h"
#include "common/model/start_weights.h"
#include "common/wire/table_map.h"

namespace syncline::scheduler {
namespace {

// Warnings are the client's to say.
void CheckWeights(const JobSpec& spec, const Model* model,
                  const TrainingGraph& graph, const std::string& path,
                  JobProblems* problems) {
  if (StartsFromWeights(spec) == path.empty()) {
    problems->of_fields.emplace_back(
        path.empty() ? "start.weights: the file did not come with the job"
                     : "start.weights: is empty, and a file came with the job");
    return;
  }
  if (path.empty() || model == nullptr) return;
  CheckStartWeights(spec, *model, graph, path, spec.start().weights(),
                    &problems->of_fields);
}

}  // namespace

absl::StatusOr<CheckedJob> CheckJob(const JobSpec& spec,
                                    absl::string_view model_bytes,
                                    const std::string& weights_path) {
  const std::string label =
      spec.model().path().empty() ? "model" : spec.model().path();
  ProblemDeduplicator deduplicator(spec);
  JobProblems problems;
  problems.of_fields = CheckSpec(spec, &deduplicator);
  TrainingGraph graph;
  const auto model =
      CheckModel(spec, model_bytes, label, &deduplicator, &graph, &problems);
  CheckWeights(spec, model.get(), graph, weights_path, &problems);
  for (const TrainingGraph::Parameter& parameter : graph.parameters) {
    if (IsUtf8(parameter.name)) continue;
    problems.of_model.push_back(absl::StrCat(label, ": the name of parameter '",
                                             absl::CHexEscape(parameter.name),
                                             "' is not UTF-8"));
  }
  std::vector<std::string> all = std::move(problems.of_fields);
  all.insert(all.end(), problems.of_model.begin(), problems.of_model.end());
  SYNCLINE_RETURN_IF_ERROR(ProblemsToStatus(all));
  CheckedJob job;
  job.spec = WithDefaults(spec);
  for (const TrainingGraph::Parameter& parameter : graph.parameters) {
    ParameterInfo& info = job.parameters.emplace_back();
    info.set_name(parameter.name);
    info.mutable_dims()->Add(parameter.dims.begin(), parameter.dims.end());
    if (parameter.momentum.has_value()) info.set_momentum(*parameter.momentum);
  }
  for (const TrainingTable& table : graph.tables) {
    TableInfo& info = job.tables.emplace_back();
    info.set_name(table.name);
    info.set_dim(table.dim);
    info.set_slots(TableMap::DefaultSlots(job.spec.resources().ps()));
  }
  return job;
}

}  // namespace syncline::scheduler
