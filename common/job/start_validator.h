#ifndef SYNCLINE_COMMON_JOB_START_VALIDATOR_H_
#define SYNCLINE_COMMON_JOB_START_VALIDATOR_H_

#include "common/job/job_spec_problems.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// JobSpec.start against its ranges, and what of it goes together. For the job
// specification's validator.
void CheckStartFields(const JobSpec& spec, Problems* problems);

// The name of its file among the job's artifacts.
inline constexpr char kWeightsArtifact[] = "start.safetensors";

// True if the job starts from the values of a safetensors file.
inline bool StartsFromWeights(const JobSpec& spec) {
  return !spec.start().weights().empty();
}

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_START_VALIDATOR_H_
