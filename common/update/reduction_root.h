#ifndef SYNCLINE_COMMON_UPDATE_REDUCTION_ROOT_H_
#define SYNCLINE_COMMON_UPDATE_REDUCTION_ROOT_H_

#include <cstdint>

#include "proto/job.pb.h"

namespace syncline {

// The process at which a job's reductions over members run: that of norms
// among the owners of blocks (NormReducer), and that of batch statistics among
// the workers (StatisticsReducer). All members derive the same one from the
// assignment; no code besides ReductionRootOf says which it is.
struct ReductionRoot {
  enum class Role { kPs, kWorker };

  Role role = Role::kPs;
  uint32_t rank = 0;  // in the role
  Participant participant;

  bool Is(Role other_role, uint32_t other_rank) const {
    return role == other_role && rank == other_rank;
  }
};

// The shard with which the root is, where it is a ps: not the ps' others.
inline constexpr uint32_t kRootShard = 0;

// "ps" or "worker", for messages.
const char* RoleName(ReductionRoot::Role role);

// The ps that has kRootShard; in a job without ps, the worker of rank 0.
// REQUIRES: the job has either; its routing names ps that there are.
ReductionRoot ReductionRootOf(const JobAssignment& assignment);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_UPDATE_REDUCTION_ROOT_H_
