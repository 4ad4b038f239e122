#include "common/model/job_check.h"

#include "common/job/job_spec_validator.h"

namespace syncline {

std::vector<std::string> CheckSpec(const JobSpec& spec,
                                   ProblemDeduplicator* deduplicator) {
  return deduplicator->KeepNew(ValidateJobSpec(spec));
}

std::shared_ptr<const Model> CheckModel(const JobSpec& spec,
                                        absl::string_view model_bytes,
                                        absl::string_view label,
                                        ProblemDeduplicator* deduplicator,
                                        TrainingGraph* graph,
                                        JobProblems* problems) {
  std::shared_ptr<const Model> model =
      ParseJobModelWithProblems(spec, model_bytes, label, &problems->of_model);
  if (model == nullptr || !deduplicator->complete()) return nullptr;
  std::vector<std::string> misfits;
  *graph = ResolveTrainingGraph(WithDefaults(spec), *model, &misfits);
  for (std::string& misfit : deduplicator->KeepNew(misfits)) {
    problems->of_fields.push_back(std::move(misfit));
  }
  return problems->empty() ? model : nullptr;
}

}  // namespace syncline
