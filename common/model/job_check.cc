#include "common/model/job_check.h"

#include "absl/strings/str_cat.h"
#include "common/job/elastic_validator.h"
#include "common/job/job_spec_validator.h"
#include "common/job/lease_rules.h"
#include "common/model/mixed_samples.h"

namespace syncline {
namespace {

// A batch that any number of workers divide is another one to what combines its
// samples. Here alone: `synctl scale` gives such a job a global_batch later.
void CheckMixedSamples(const JobSpec& spec, const TrainingGraph& graph,
                       std::vector<std::string>* misfits) {
  const bool has_global = spec.training().global_batch() > 0;
  if (graph.mixed_samples.empty() ||
      (!has_global && (!IsElastic(spec) || LeasesData(spec)))) {
    return;
  }
  misfits->push_back(absl::StrCat(
      has_global                           ? "training.global_batch"
      : spec.resources().max_workers() > 0 ? "resources.max_workers"
                                           : "resources.min_workers",
      ": ", DescribeMixed(graph.mixed_samples),
      " combines the samples of a batch, and how many of them a worker has "
      "follows from the number of workers"));
}

}  // namespace

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
  CheckMixedSamples(spec, *graph, &misfits);
  for (std::string& misfit : deduplicator->KeepNew(misfits)) {
    problems->of_fields.push_back(std::move(misfit));
  }
  return problems->empty() ? model : nullptr;
}

}  // namespace syncline
