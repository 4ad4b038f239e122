#ifndef SYNCLINE_COMMON_JOB_STOP_VALIDATOR_H_
#define SYNCLINE_COMMON_JOB_STOP_VALIDATOR_H_

#include "common/job/job_spec_problems.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// JobSpec.stop against its ranges, and what it needs. For the job
// specification's validator.
void CheckStop(const JobSpec& spec, Problems* problems);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_STOP_VALIDATOR_H_
