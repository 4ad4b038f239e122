#ifndef SYNCLINE_COMMON_JOB_ELASTIC_VALIDATOR_H_
#define SYNCLINE_COMMON_JOB_ELASTIC_VALIDATOR_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/job/job_spec_problems.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// Jobs that go on with another number of workers: resources.min_workers,
// resources.max_workers, training.global_batch, `synctl scale`. Pure.

inline constexpr uint32_t kWorkersMax = 1024;

// JobSpec's fields of these against their ranges, and what they need. For the
// job specification's validator.
void CheckElastic(const JobSpec& spec, Problems* problems);

// The number of workers may change while the job exists, without anyone's
// doing. REQUIRES: `spec` has its defaults.
bool IsElastic(const JobSpec& spec);

// The job trains on, in the same attempt, when a worker other than the chief is
// lost: those that are left share the samples of the clocks behind
// (docs/adr/093), or lease them, where the data are leased (docs/adr/096).
// REQUIRES: `spec` has its defaults. An attempt's has the number of its
// workers.
bool OutlivesWorkers(const JobSpec& spec);

// The largest share of a clock that a worker may come to have in such an
// attempt; SharesOf's where it has all its workers to the end.
int64_t LargestShare(const JobSpec& spec);

// Each ps keeps its part of the job's checkpoints for itself, so that the job
// can go on on the same ps alone. REQUIRES: `spec` has a checkpoint.
bool KeepsCheckpointsOnPs(const JobSpec& spec);

// Why the mode of a job in SYNC cannot change while it runs with `workers`, of
// which people have said `wanted` (0: nothing): others could not take their
// places any more. Empty: it can. REQUIRES: `spec` has its defaults.
std::string WhyTiedToSync(const JobSpec& spec, uint32_t workers,
                          uint32_t wanted);

// Whether the job can have this many workers instead of its own. REQUIRES:
// `spec` has its defaults. `normalizes_batches`: its model keeps running
// statistics of batches. Errors: InvalidArgument: not a number that the job
// allows, or that its clocks have samples for; FailedPrecondition: its workers'
// number cannot change at all, and why.
absl::Status CheckWorkersOf(const JobSpec& spec, uint32_t workers,
                            bool normalizes_batches);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_ELASTIC_VALIDATOR_H_
