#ifndef SYNCLINE_SCHEDULER_CORE_JOB_WORKER_RANGE_H_
#define SYNCLINE_SCHEDULER_CORE_JOB_WORKER_RANGE_H_

#include <cstdint>

#include "proto/job.pb.h"

namespace syncline::scheduler {

// How many workers the next attempt of a job may have. Pure.
//
// wanted: what `synctl scale` said last, else resources.workers.
// least: resources.min_workers, else as wanted; a job that was scaled up goes
// on with as many as it had, where no more are free.
// most: resources.max_workers, else as wanted; after `synctl scale` the number
// that was said.
//
// All three are the number that the job had where its next attempt goes on in a
// regime in which a clock is not the same for other workers (KeepsClocks), or
// from a checkpoint that was made in one.
struct WorkerRange {
  uint32_t least = 0;
  uint32_t wanted = 0;
  uint32_t most = 0;
};
WorkerRange RangeOf(const JobStatus& job);
// The same of an attempt that goes on from a checkpoint which the running job
// makes now.
WorkerRange RangeAfterSave(const JobStatus& job);

// A clock has the same samples for any number of workers, and all of them are
// at one: in SYNC, or with leased data, where one worker makes a clock.
bool KeepsClocks(const JobSpec& spec, const Regime& regime);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_JOB_WORKER_RANGE_H_
