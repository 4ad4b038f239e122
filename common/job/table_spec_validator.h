#ifndef SYNCLINE_COMMON_JOB_TABLE_SPEC_VALIDATOR_H_
#define SYNCLINE_COMMON_JOB_TABLE_SPEC_VALIDATOR_H_

#include <string>

#include "common/job/job_spec_problems.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// The part of ValidateJobSpec that concerns embedding tables.
// ResolveTrainingGraph checks the model's side of them.
void CheckTables(const JobSpec& spec, Problems* problems);

// What the user of tables whose rows decay must read before the job trains.
// Empty: none do.
std::string DecayNote(const JobSpec& spec);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_TABLE_SPEC_VALIDATOR_H_
