#ifndef SYNCLINE_COMMON_JOB_RESTART_VALIDATOR_H_
#define SYNCLINE_COMMON_JOB_RESTART_VALIDATOR_H_

#include <cstdint>

#include "common/job/job_spec_problems.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// Of restart.max: restarts are counted in a job's record, which keeps the last
// transitions alone.
inline constexpr uint32_t kRestartsMax = 50;

// JobSpec.restart and start against their ranges, and what they need. For the
// job specification's validator.
void CheckRestart(const JobSpec& spec, Problems* problems);

// The defaults of the same fields.
void FillRestart(JobSpec* spec);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_RESTART_VALIDATOR_H_
