#ifndef SYNCLINE_COMMON_MODEL_START_WEIGHTS_H_
#define SYNCLINE_COMMON_MODEL_START_WEIGHTS_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/model/model.h"
#include "common/model/safetensors.h"
#include "common/model/training_graph.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// How the tensors of StartSpec.weights lie over a model.
struct WeightSources {
  // By TrainingGraph::parameters index: the tensor of the file that it starts
  // with; -1: none.
  std::vector<int> parameters;
  // Likewise by TrainingGraph::fixed.
  std::vector<int> fixed;
  // For people, a line each: tensors that are not used, parameters that keep
  // their initial values.
  std::vector<std::string> warnings;
};

// Lays the file's tensors, renamed by start.names, over the parameters and the
// fixed initializers. Appends one "start.weights: problem" per problem to
// *problems: a shape that is not the model's, with both; a type that is no
// float; two tensors of one name; a tensor for a table, whose rows do not come
// from such a file; parameters and tables that the file lacks, unless
// start.allow_missing; a file none of whose tensors is the model's. Where the
// rules of start.names would take too long with the file's names, that alone is
// said, as "start.names: problem", and the answer is empty. Pure.
WeightSources MatchWeights(const JobSpec& spec, const TrainingGraph& graph,
                           absl::Span<const FileTensor> tensors,
                           std::vector<std::string>* problems);

// The whole check of a job's file at `path`, before it is queued: its header,
// MatchWeights, and that what the model does not train has the same bits in the
// file, because its values are those of the model file. Warns of squares that
// the model multiplies from the right, as [in, out]: PyTorch has the weight of
// a Linear layer as [out, in], and no shape tells them apart; not of those of
// the same name that Syncline has written. `label`: the file, for messages.
// Reads the values of fixed initializers alone. What the file cannot give is
// -1. REQUIRES: start.weights is set; `graph` is that of `model`, which has its
// values.
WeightSources CheckStartWeights(const JobSpec& spec, const Model& model,
                                const TrainingGraph& graph,
                                const std::string& path,
                                const std::string& label,
                                std::vector<std::string>* problems);

// Says of each parameter without values in the model file that the weights file
// has some, so that reports are true.
void MarkStarted(const WeightSources& sources, TrainingGraph* graph);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_START_WEIGHTS_H_
