#ifndef SYNCLINE_COMMON_JOB_LOCAL_RULES_H_
#define SYNCLINE_COMMON_JOB_LOCAL_RULES_H_

#include <cstdint>
#include <string>

#include "common/job/job_spec_problems.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// The rules of LOCAL, whose workers make some steps of their own, with the
// job's optimizer, between two exchanges with the ps (ADR 081). A clock of such
// a job is a round of these steps; for the ps it is a step in SYNC.

inline constexpr uint32_t kLocalStepsMax = 1024;

inline bool IsLocal(const JobSpec& spec) {
  return spec.consistency().mode() == ConsistencySpec::LOCAL;
}

// The steps that a worker makes in a clock, the last one of an epoch apart:
// local.steps, and 1 in the other modes. REQUIRES: `spec` has its defaults.
inline int64_t StepsOfClock(const JobSpec& spec) {
  return IsLocal(spec) ? spec.consistency().local().steps() : 1;
}

// The optimizer of those who own the parameters: in LOCAL
// consistency.local.optimizer, since `optimizer` is that of the workers' own
// steps. REQUIRES: `spec` has its defaults.
inline const OptimizerSpec& OwnersOptimizer(const JobSpec& spec) {
  return IsLocal(spec) ? spec.consistency().local().optimizer()
                       : spec.optimizer();
}

// The name of the field that OwnersOptimizer is.
inline const char* OwnersOptimizerField(const JobSpec& spec) {
  return IsLocal(spec) ? "consistency.local.optimizer" : "optimizer";
}

// consistency.local against its ranges, and by name what does not go with
// LOCAL. The strategy is strategy_rules.h's, the number of workers
// elastic_validator.h's, and changes of the mode are regime_rules.h's.
void CheckLocal(const JobSpec& spec, Problems* problems);

// The defaults of consistency.local, but for the fields of its optimizer.
void FillLocal(JobSpec* spec);

// Lines that the user of a job in LOCAL must read before it trains: what a
// clock is; and, as a warning, that a checkpoint lacks the state of
// `optimizer`. Empty: there is nothing to say.
std::string LocalNote(const JobSpec& spec);
std::string LocalWarning(const JobSpec& spec);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_LOCAL_RULES_H_
