#ifndef SYNCLINE_COMMON_JOB_LOST_WORKERS_H_
#define SYNCLINE_COMMON_JOB_LOST_WORKERS_H_

#include <cstdint>

#include "absl/algorithm/container.h"
#include "proto/job.pb.h"

namespace syncline {

// Workers that the job's last attempt has, without those that it has lost.
inline uint32_t WorkersLeft(const JobStatus& job) {
  return static_cast<uint32_t>(job.workers_size() - job.lost_workers_size());
}

// The attempt goes on without this worker.
inline bool IsLost(const JobStatus& job, uint32_t rank) {
  return absl::c_any_of(
      job.lost_workers(),
      [rank](const JobStatus::Lost& lost) { return lost.rank() == rank; });
}

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_LOST_WORKERS_H_
