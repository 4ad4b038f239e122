#ifndef SYNCLINE_SCHEDULER_CORE_JOB_EVALUATION_HISTORY_H_
#define SYNCLINE_SCHEDULER_CORE_JOB_EVALUATION_HISTORY_H_

#include "proto/job.pb.h"

namespace syncline::scheduler {

// The evaluations that are kept of one job. Where more come, every second one
// goes, not the first.
inline constexpr int kEvaluationsMax = 4096;

// True if an evaluation is later than all that the job has. A daemon that has
// registered again repeats reports that may not have arrived.
bool IsNewEvaluation(const Evaluation& evaluation, const JobStatus& job);

// Appends an evaluation. REQUIRES: it is new.
void AddEvaluation(Evaluation evaluation, JobStatus* job);

// Removes the evaluations of clocks after `clock`, and those that count as the
// last one: the job goes on from there.
void ForgetEvaluations(int64_t clock, JobStatus* job);

// None of the job's evaluations counts as its best one any more: the parameters
// that they are of were with members that have left. True if one did.
bool ForgetBest(JobStatus* job);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_JOB_EVALUATION_HISTORY_H_
