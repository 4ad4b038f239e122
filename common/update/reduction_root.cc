#include "common/update/reduction_root.h"

#include "common/base/check.h"

namespace syncline {

const char* RoleName(ReductionRoot::Role role) {
  return role == ReductionRoot::Role::kPs ? "ps" : "worker";
}

ReductionRoot ReductionRootOf(const JobAssignment& assignment) {
  if (assignment.ps_size() > 0) {
    const auto& shard_ps = assignment.routing().shard_ps();
    const uint32_t rank = shard_ps.empty() ? 0 : shard_ps[kRootShard];
    SYNCLINE_CHECK(rank < static_cast<uint32_t>(assignment.ps_size()));
    return {ReductionRoot::Role::kPs, rank,
            assignment.ps(static_cast<int>(rank))};
  }
  SYNCLINE_CHECK(assignment.workers_size() > 0);
  return {ReductionRoot::Role::kWorker, 0, assignment.workers(0)};
}

}  // namespace syncline
