#ifndef SYNCLINE_COMMON_JOB_PRECISION_VALIDATOR_H_
#define SYNCLINE_COMMON_JOB_PRECISION_VALIDATOR_H_

#include <string>

#include "common/job/job_spec_problems.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// JobSpec.precision and loss_scale against their ranges, and what does not go
// together with them. For the job specification's validator.
void CheckPrecision(const JobSpec& spec, Problems* problems);

// The defaults of the same fields.
void FillPrecision(JobSpec* spec);

// A line that the user of a job of 16 bits or TF32 must read before it trains:
// what they save, and what they do not. Empty: the job computes in float32, or
// there is nothing to say.
std::string PrecisionNote(const JobSpec& spec);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_PRECISION_VALIDATOR_H_
