#ifndef SYNCLINE_WORKER_TRAINING_SKIPPED_COUNTS_H_
#define SYNCLINE_WORKER_TRAINING_SKIPPED_COUNTS_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/regime/regime_schedule.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"

namespace syncline::worker {

// Asks the ps of a job for JobProgress.skipped_clocks and dropped_blocks; the
// rest is not set. Blocks that overflow only in the sum over all workers are
// not among them: a ps tells the scheduler alone of these. Where the job fails
// at the first such gradient, no ps is asked. Blocks until `deadline`.
// Errors: those of the first ps that does not answer, with its address.
absl::StatusOr<JobProgress> AskSkippedCounts(const JobAssignment& assignment,
                                             const RegimeSchedule& regimes,
                                             absl::Time deadline);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_TRAINING_SKIPPED_COUNTS_H_
