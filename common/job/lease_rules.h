#ifndef SYNCLINE_COMMON_JOB_LEASE_RULES_H_
#define SYNCLINE_COMMON_JOB_LEASE_RULES_H_

#include <cstdint>
#include <string>

#include "common/job/job_spec_problems.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// The rules of jobs with leased data (DataSpec.LEASED, ADR 091): a clock is one
// batch of `training.batch_size` samples, and one worker makes it. Workers
// lease one clock after the other from shard 0, so the fast ones make more of
// them. A worker that pushes a clock says which one it makes next, and has
// closed those in between without a gradient. So the position of a job is one
// clock, as in any job, and does not depend on its workers.

// REQUIRES: nothing; a spec without `data` leases none.
inline bool LeasesData(const JobSpec& spec) {
  return spec.data().sharing() == DataSpec::LEASED;
}

// Why so many workers cannot train with such a bound; empty: they can. With
// leased data the workers are at different clocks while they train, apart by
// their number.
std::string WhyBoundTooTight(uint32_t staleness_bound, uint32_t workers);

// Refuses by name what a job with leased data cannot have. Nothing where it is
// STATIC.
void CheckLeases(const JobSpec& spec, Problems* problems);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_LEASE_RULES_H_
