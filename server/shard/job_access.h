#ifndef SYNCLINE_SERVER_SHARD_JOB_ACCESS_H_
#define SYNCLINE_SERVER_SHARD_JOB_ACCESS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/job/job_pass.h"
#include "proto/job.pb.h"
#include "proto/parameter_server.pb.h"
#include "server/consistency/consistency_options.h"

namespace syncline::ps {

// The members that may call the shards of a job on this ps, and the routing by
// which they must have chosen the shards. Immutable, hence thread-safe.
struct JobAccess {
  std::string job_id;
  std::string label;  // "job j-0001 on ps:0 at 10.0.0.5:4000"
  JobPass pass;
  uint64_t routing_version = 1;
  // Only who may call: the workers and the evaluator.
  ConsistencyOptions callers;
  GetRoutingResponse routing;  // the answer to GetRouting

  // The errors of each are those of proto/parameter_server.proto, and name the
  // job and the ps.

  // OK if the caller is of this attempt and has its rank.
  absl::Status CheckCaller(const Caller& caller) const;
  // OK for the version of this ps. Errors: Aborted, with the detail of
  // common/wire/routing_version.h: an earlier one; Unavailable: a later one.
  absl::Status CheckRouting(uint64_t version) const;
};

// Errors: InvalidArgument: no attempt or secret, `ps_rank` is not among the
// ps, or the routing's.
absl::StatusOr<JobAccess> ReadJobAccess(const JobAssignment& assignment,
                                        uint32_t ps_rank);

// "job j-0001 on ps:0 at 10.0.0.5:4000". REQUIRES: there is such a ps.
std::string JobLabel(const JobAssignment& assignment, uint32_t ps_rank);

// "worker:2 at 10.0.0.7:4000".
std::string MemberName(const Member& member);

// The workers of an assignment, by rank, and its evaluator. Of groups of
// workers the leaders, by group: each group is one worker. Errors:
// WorkerGroups::Of's.
absl::Status ReadCallers(const JobAssignment& assignment,
                         ConsistencyOptions* options);

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SHARD_JOB_ACCESS_H_
