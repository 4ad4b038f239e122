#ifndef SYNCLINE_WORKER_TRAINING_SKIPPED_COUNTS_H_
#define SYNCLINE_WORKER_TRAINING_SKIPPED_COUNTS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"

namespace syncline::worker {

// Asks the ps of a job for JobProgress.skipped_clocks and dropped_blocks; the
// rest is not set. Where the job fails at the first gradient that is not
// finite, no ps is asked. Blocks until `deadline`. Errors: those of the first
// ps that does not answer, with its address.
absl::StatusOr<JobProgress> AskSkippedCounts(const JobAssignment& assignment,
                                             absl::Time deadline);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_TRAINING_SKIPPED_COUNTS_H_
