#ifndef SYNCLINE_COMMON_JOB_CHECKPOINT_VALIDATOR_H_
#define SYNCLINE_COMMON_JOB_CHECKPOINT_VALIDATOR_H_

#include "common/job/job_spec_problems.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// JobSpec.checkpoint against its ranges. For the job specification's validator.
void CheckCheckpoint(const JobSpec& spec, Problems* problems);

// The defaults of the same fields.
void FillCheckpoint(JobSpec* spec);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_CHECKPOINT_VALIDATOR_H_
