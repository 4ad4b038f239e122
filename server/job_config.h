#ifndef SYNCLINE_SERVER_JOB_CONFIG_H_
#define SYNCLINE_SERVER_JOB_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/wire/block_map.h"
#include "proto/job.pb.h"
#include "server/consistency_controller.h"
#include "server/dense_shard.h"

namespace syncline {

// What one shard takes from a job's assignment.
struct JobConfig {
  std::string job_id;
  uint32_t ps_rank = 0;
  uint64_t routing_version = 1;
  std::string label;  // "job j-0001 on ps:0 at 10.0.0.5:4000"
  BlockMap map;
  DenseShard::Options shard;
  ConsistencyController::Options controller;
  // The schedule ends with the job; how many clocks that is comes with Init.
  bool needs_total_clocks = false;
  // How long a call may wait that does not say so itself.
  absl::Duration wait_max;
};

// Reads an assignment whose spec has every default filled in.
// Errors: InvalidArgument: a field that this version cannot obey, no worker,
// `ps_rank` is not among the ps, or the block map's.
absl::StatusOr<JobConfig> ReadJobConfig(const JobAssignment& assignment,
                                        uint32_t ps_rank);

// "worker:2 at 10.0.0.7:4000".
std::string MemberName(const Member& member);

}  // namespace syncline

#endif  // SYNCLINE_SERVER_JOB_CONFIG_H_
