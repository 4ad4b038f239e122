#ifndef SYNCLINE_COMMON_MODEL_TRAINING_GRAPH_H_
#define SYNCLINE_COMMON_MODEL_TRAINING_GRAPH_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/import/weight_choice.h"
#include "common/model/model.h"
#include "common/model/training_tables.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// The dimension that job says the lengths of; no symbol: none.
LengthDimension LengthOf(const LengthBuckets& buckets);

// Model::Parse with the patterns of spec.model.initialize, the names of
// spec.tables and the dimension of spec.data.buckets. Errors: as there.
absl::StatusOr<std::shared_ptr<Model>> ParseJobModel(const JobSpec& spec,
                                                     absl::string_view bytes,
                                                     absl::string_view label);
// Model::ParseWithProblems likewise.
std::shared_ptr<Model> ParseJobModelWithProblems(
    const JobSpec& spec, absl::string_view bytes, absl::string_view label,
    std::vector<std::string>* problems);

// How a job's spec lies over its model: which graph inputs are fed, which
// initializers are trained and how they start, which output has the loss.
struct TrainingGraph {
  struct Parameter {
    ValueId value = kNoValue;
    std::string name;
    Dims dims;
    int initializer = -1;  // index into Graph::initializers
    int rule = -1;         // index into ModelSpec.initialize; -1: file's values
    // A running mean or variance of BatchNormalization: no gradient descends
    // on it, value = momentum * value + (1 - momentum) * the batch's.
    std::optional<float> momentum = {};
    WeightReason reason = WeightReason::kAssumed;  // why it is trained
  };
  // A float32 initializer of the file that is not trained.
  struct Fixed {
    std::string name;
    Dims dims;
    WeightReason reason = WeightReason::kUnreached;
  };
  std::vector<Parameter> parameters;  // trained float32 ones, in initializer
                                      // order: the file's, then declared ones
  std::vector<Fixed> fixed;           // in initializer order
  // Warnings, a line each: facts that are no mistake, but that the user should
  // read before the job runs.
  std::vector<std::string> warnings;
  // Nodes that combine the samples of a batch (mixed_samples.h).
  std::vector<std::string> mixed_samples;
  std::vector<TrainingTable> tables;  // by JobSpec.tables index
  std::vector<ValueId> feeds;         // by DataSpec.feeds index
  ValueId loss_output = kNoValue;
};

// Resolves names of `spec` against `model`; also checks the loss output's shape
// against the loss kind and infers shapes for the batch sizes and the lengths
// of the spec.
// Appends one "field: problem" per problem to *problems and returns what could
// be resolved. Of a model that is not whole only names are resolved, and shapes
// where they are known.
// REQUIRES: `spec` has its defaults; `model` comes from ParseJobModel with it.
// Of an invalid spec it may say again what is wrong (JobSpec's validator does).
TrainingGraph ResolveTrainingGraph(const JobSpec& spec, const Model& model,
                                   std::vector<std::string>* problems);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_TRAINING_GRAPH_H_
