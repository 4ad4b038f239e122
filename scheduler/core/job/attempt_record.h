#ifndef SYNCLINE_SCHEDULER_CORE_JOB_ATTEMPT_RECORD_H_
#define SYNCLINE_SCHEDULER_CORE_JOB_ATTEMPT_RECORD_H_

#include "absl/functional/function_ref.h"
#include "proto/job.pb.h"
#include "proto/scheduler_state.pb.h"
#include "scheduler/core/job/attempt.h"
#include "scheduler/core/membership.h"

namespace syncline::scheduler {

// The durable record of an attempt whose members prepare or run, and its use by
// another scheduler, which goes on with the attempt. Pure.

AttemptRecord RecordOf(const JobStatus& job, const Attempt& attempt);

// Sets pass, start, members and the chief's clocks of an attempt that has just
// been made. The members are at their beginning, with sessions of
// `next_session`.
void RestoreAttempt(const AttemptRecord& record,
                    absl::FunctionRef<SessionId()> next_session,
                    Attempt* attempt);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_JOB_ATTEMPT_RECORD_H_
