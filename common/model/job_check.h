#ifndef SYNCLINE_COMMON_MODEL_JOB_CHECK_H_
#define SYNCLINE_COMMON_MODEL_JOB_CHECK_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/job/problem_deduplicator.h"
#include "common/model/model.h"
#include "common/model/training_graph.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// Problems of a job as a whole: one list from its spec, its model and how the
// one lies over the other. A problem that only follows from another one is left
// out.
struct JobProblems {
  std::vector<std::string> of_fields;  // "field.path: what"
  std::vector<std::string> of_model;   // "label: what"
  bool empty() const { return of_fields.empty() && of_model.empty(); }
};

// The problems of `spec` alone that `deduplicator` has not seen yet. It has
// seen them from then on.
std::vector<std::string> CheckSpec(const JobSpec& spec,
                                   ProblemDeduplicator* deduplicator);

// The model of a job that has no problems; else null, and *problems has more.
// Takes as long as parsing the model.
//   model_bytes   as for Model::Parse
//   deduplicator  has seen the problems of `spec`, CheckSpec's included
//   graph         how `spec`, with its defaults, lies over the model
std::shared_ptr<const Model> CheckModel(const JobSpec& spec,
                                        absl::string_view model_bytes,
                                        absl::string_view label,
                                        ProblemDeduplicator* deduplicator,
                                        TrainingGraph* graph,
                                        JobProblems* problems);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_JOB_CHECK_H_
