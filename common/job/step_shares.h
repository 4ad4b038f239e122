#ifndef SYNCLINE_COMMON_JOB_STEP_SHARES_H_
#define SYNCLINE_COMMON_JOB_STEP_SHARES_H_

#include <cstdint>

#include "proto/job_spec.pb.h"

namespace syncline {

// How workers share the samples of a clock, and compute their shares. Pure.
//
// With TrainingSpec.global_batch a clock has so many samples whatever the
// number of workers. Of n samples rank r of W has [n * r / W, n * (r + 1) / W):
// shares differ by one at most. A share that is larger than what a worker
// computes at once (batch_size / micro_batches) is computed in parts. Without
// global_batch each worker has batch_size samples, in micro_batches parts. With
// leased data (lease_rules.h) a clock is one worker's, of batch_size samples.

struct StepShares {
  int64_t samples = 0;  // of a full clock, over all workers
  int64_t largest = 0;  // the largest share of a worker in it
  int64_t parts = 1;    // that such a share is computed in
};

// REQUIRES: `spec` has its defaults, workers > 0.
StepShares SharesOf(const JobSpec& spec, uint32_t workers);
// By resources.workers. REQUIRES: `spec` has its defaults.
StepShares SharesOf(const JobSpec& spec);

// `spec` as the members of an attempt with so many workers get it:
// resources.workers is their number. Where the job asks for another number, a
// clock keeps its samples: global_batch is what that number had.
JobSpec SpecForWorkers(JobSpec spec, uint32_t workers);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_STEP_SHARES_H_
