#ifndef SYNCLINE_COMMON_JOB_GROUP_RULES_H_
#define SYNCLINE_COMMON_JOB_GROUP_RULES_H_

#include "common/job/job_spec_problems.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// `groups` against its ranges, and by name what does not go with groups of more
// than one worker (ADR 083). That the hosts of by_host have as many workers
// each is found when a job gets its workers (worker_groups.h); that the number
// of workers stays is elastic_validator.h's; that the regime stays is
// regime_rules.h's and auto_regime_rules.h's.
void CheckGroups(const JobSpec& spec, Problems* problems);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_GROUP_RULES_H_
