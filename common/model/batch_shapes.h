#ifndef SYNCLINE_COMMON_MODEL_BATCH_SHAPES_H_
#define SYNCLINE_COMMON_MODEL_BATCH_SHAPES_H_

#include <string>
#include <vector>

#include "common/model/model.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// Infers shapes for the batch sizes of a job and for each length of its
// samples, and checks that the scores of each length are ones that labels fit.
// The part of ResolveTrainingGraph that concerns shapes; what it says of
// `spec`, `model` and problems holds here too. `loss_output` may be kNoValue.
void CheckBatchShapes(const JobSpec& spec, const Model& model,
                      ValueId loss_output, std::vector<std::string>* problems);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_BATCH_SHAPES_H_
