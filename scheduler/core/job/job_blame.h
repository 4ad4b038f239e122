#ifndef SYNCLINE_SCHEDULER_CORE_JOB_JOB_BLAME_H_
#define SYNCLINE_SCHEDULER_CORE_JOB_JOB_BLAME_H_

#include <cstdint>

#include "absl/time/time.h"
#include "common/job/worker_groups.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"

namespace syncline::scheduler {

// For whom a job's workers have waited, and who was left behind. Pure.

// Takes the blame of a ps' report into `progress`: that of a group is its
// leader's. False: nothing is new there; only the ps of shard 0 reports any.
bool TakeBlame(const PsReport& report, const WorkerGroups& groups,
               JobProgress* progress);

// Of a job whose clocks end without some workers: it is where its foremost
// worker is, not where the slowest is. `start_clock`: the attempt's first;
// `ends_early`: as JobProgressTracker has it; `running`: for how long it has
// been running.
void FollowTheForemost(int64_t start_clock, bool ends_early,
                       absl::Duration running, JobProgress* progress);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_JOB_JOB_BLAME_H_
