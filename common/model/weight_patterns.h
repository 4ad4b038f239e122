#ifndef SYNCLINE_COMMON_MODEL_WEIGHT_PATTERNS_H_
#define SYNCLINE_COMMON_MODEL_WEIGHT_PATTERNS_H_

#include <string>
#include <vector>

#include "common/model/import/weight_choice.h"
#include "common/model/model.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// The plan for one initializer, from the job and its model.
struct WeightPlan {
  bool is_float = false;  // float32, not of a Constant node, and no table
  // A parameter if a gradient of the loss reaches it.
  bool fillable = false;
  WeightReason reason = WeightReason::kUnreached;  // of that
  int rule = -1;   // the first of ModelSpec.initialize that fills it
  int train = -1;  // the first of ModelSpec.train that matches it
};

// Lays the patterns of model.initialize, model.freeze and model.train over the
// initializers; by Graph::initializers index. In this order says what one is:
// model.freeze and model.train; that it has no values, which makes it a weight;
// the file (ExportRecord); a rule of model.initialize whose pattern is more
// than wildcards; and its use (WeightUses). A file that says what its
// initializers are is taken at its word also in what it does not say, unless
// `accept_merged` is set: then some of its parameters are there under no name
// of theirs. Of a model that is not whole only names are looked at.
// Appends one "field: problem" per problem of a pattern to *problems.
std::vector<WeightPlan> PlanWeights(const JobSpec& spec, const Model& model,
                                    std::vector<std::string>* problems);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_WEIGHT_PATTERNS_H_
