#include "common/model/job_check.h"

#include "common/job/job_spec_validator.h"

namespace syncline {

std::vector<std::string> CheckSpec(const JobSpec& spec,
                                   ReportedFields* reported) {
  return reported->Report(ValidateJobSpec(spec));
}

std::shared_ptr<const Model> CheckModel(
    const JobSpec& spec, absl::string_view model_bytes, absl::string_view label,
    ReportedFields* reported, TrainingGraph* graph, JobProblems* problems) {
  std::shared_ptr<const Model> model =
      ParseJobModelWithProblems(spec, model_bytes, label, &problems->of_model);
  if (model == nullptr || !reported->complete()) return nullptr;
  std::vector<std::string> misfits;
  *graph = ResolveTrainingGraph(WithDefaults(spec), *model, &misfits);
  for (std::string& misfit : reported->Report(misfits)) {
    problems->of_fields.push_back(std::move(misfit));
  }
  return problems->empty() ? model : nullptr;
}

}  // namespace syncline
