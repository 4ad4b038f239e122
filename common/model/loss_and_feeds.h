#ifndef SYNCLINE_COMMON_MODEL_LOSS_AND_FEEDS_H_
#define SYNCLINE_COMMON_MODEL_LOSS_AND_FEEDS_H_

// Both ends of a job's graph: the output that has the loss, and the inputs that
// its data feeds. The part of ResolveTrainingGraph that concerns them; what it
// says of `spec`, `model` and problems holds here too.

#include <string>
#include <vector>

#include "common/model/model.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// The output that spec.loss names, or the only one; kNoValue: there is none.
// Checks that its shape is one that the loss, the classes of the label and the
// metrics are for.
ValueId ResolveLossOutput(const JobSpec& spec, const Model& model,
                          std::vector<std::string>* problems);

// A warning if the loss output is the result of the activation that the loss
// computes itself, Softmax or Sigmoid, perhaps under another shape; empty: it
// is not.
std::string DescribeDoubledActivation(const JobSpec& spec, const Model& model,
                                      ValueId loss_output);

// By DataSpec.feeds index: the graph input, kNoValue if there is none of this
// name. Checks that each takes what its feed says, and that every input which
// `loss_output` depends on is fed.
std::vector<ValueId> ResolveFeeds(const JobSpec& spec, const Model& model,
                                  ValueId loss_output,
                                  std::vector<std::string>* problems);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_LOSS_AND_FEEDS_H_
