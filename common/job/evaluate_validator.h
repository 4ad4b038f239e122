#ifndef SYNCLINE_COMMON_JOB_EVALUATE_VALIDATOR_H_
#define SYNCLINE_COMMON_JOB_EVALUATE_VALIDATOR_H_

#include "common/job/job_spec_problems.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// JobSpec.evaluate: what it needs, and what it does not go with. For the job
// specification's validator.
void CheckEvaluate(const JobSpec& spec, Problems* problems);

// True if the evaluator scores the job's checkpoints from their files. The job
// is then evaluated nowhere else: its evaluator reads nothing from ps or
// workers.
inline bool EvaluatesCheckpoints(const JobSpec& spec) {
  return spec.evaluate().checkpoints() && !spec.evaluate().only();
}

// True if the job trains nothing, and evaluates start.checkpoint.
inline bool OnlyEvaluates(const JobSpec& spec) {
  return spec.evaluate().only();
}

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_EVALUATE_VALIDATOR_H_
