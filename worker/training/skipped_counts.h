#ifndef SYNCLINE_WORKER_TRAINING_SKIPPED_COUNTS_H_
#define SYNCLINE_WORKER_TRAINING_SKIPPED_COUNTS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/regime/regime_schedule.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"

namespace syncline::worker {

// Asks the ps of a job for JobProgress.skipped_clocks and dropped_blocks; the
// rest is not set. Blocks that overflow only in the sum over all workers are
// not among them: a ps tells the scheduler alone of these. `dropped_before`:
// blocks that the ps count in their totals and for no worker
// (ParameterExchange::dropped_before_ps), which are added. Where the job fails
// at the first such gradient, no ps is asked. Blocks until `deadline`.
// Errors: those of the first ps that does not answer, with its address.
absl::StatusOr<JobProgress> AskSkippedCounts(const JobAssignment& assignment,
                                             const RegimeSchedule& regimes,
                                             uint64_t dropped_before,
                                             absl::Time deadline);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_TRAINING_SKIPPED_COUNTS_H_
