#include "scheduler/job_intake.h"

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/model/model.h"
#include "common/model/training_graph.h"
#include "common/rpc/job_spec_validator.h"

namespace syncline {

absl::StatusOr<CheckedJob> CheckJob(const JobSpec& spec,
                                    absl::string_view model_bytes) {
  std::vector<std::string> problems = ValidateJobSpec(spec);
  const std::string label =
      spec.model().path().empty() ? "model" : spec.model().path();
  const auto model = ParseJobModel(spec, model_bytes, label);
  if (!model.ok()) {
    for (const absl::string_view line :
         absl::StrSplit(model.status().message(), '\n')) {
      problems.emplace_back(line);
    }
  }
  if (!problems.empty()) return ProblemsToStatus(problems);

  CheckedJob job;
  job.spec = WithDefaults(spec);
  const TrainingGraph graph =
      ResolveTrainingGraph(job.spec, **model, &problems);
  for (const TrainingGraph::Parameter& parameter : graph.parameters) {
    if (IsUtf8(parameter.name)) continue;
    problems.push_back(absl::StrCat(label, ": the name of parameter '",
                                    absl::CHexEscape(parameter.name),
                                    "' is not UTF-8"));
  }
  SYNCLINE_RETURN_IF_ERROR(ProblemsToStatus(problems));
  for (const TrainingGraph::Parameter& parameter : graph.parameters) {
    ParameterInfo& info = job.parameters.emplace_back();
    info.set_name(parameter.name);
    info.mutable_dims()->Add(parameter.dims.begin(), parameter.dims.end());
  }
  return job;
}

}  // namespace syncline
