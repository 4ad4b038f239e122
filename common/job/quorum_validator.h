#ifndef SYNCLINE_COMMON_JOB_QUORUM_VALIDATOR_H_
#define SYNCLINE_COMMON_JOB_QUORUM_VALIDATOR_H_

#include <optional>
#include <string>

#include "common/job/job_spec_problems.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// True if the mode ends clocks without some workers: SYNC_WITH_BACKUPS,
// SYNC_WITH_TIMEOUT.
bool LeavesBehind(ConsistencySpec::Mode mode);
// True also of SYNC and LOCAL: the gradients of a clock are applied together.
bool IsSyncOrKin(ConsistencySpec::Mode mode);

// A gradient that comes too late is pushed at the open clock: SCALE,
// COMPENSATE.
bool PushesLate(const JobSpec& spec);
// The weight of COMPENSATE's correction; none: the job does not compensate.
std::optional<float> CompensationOf(const JobSpec& spec);

// The fields of ConsistencySpec that are about clocks which end without some
// workers: needed, timeout_seconds, late, compensation; and what such a job
// cannot have.
void CheckQuorum(const JobSpec& spec, Problems* problems);

// A sentence that a user has to read before such a job starts: samples of
// clocks that a worker was left behind at are not trained in that epoch. Empty:
// the mode waits for all workers.
std::string QuorumNote(const JobSpec& spec);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_QUORUM_VALIDATOR_H_
