#include "common/update/reduction_root.h"

#include "common/base/check.h"

namespace syncline {

const char* RoleName(ReductionRoot::Role role) {
  return role == ReductionRoot::Role::kPs ? "ps" : "worker";
}

ReductionRoot ReductionRootOf(const JobAssignment& assignment) {
  if (assignment.ps_size() > 0) {
    return {ReductionRoot::Role::kPs, 0, assignment.ps(0)};
  }
  SYNCLINE_CHECK(assignment.workers_size() > 0);
  return {ReductionRoot::Role::kWorker, 0, assignment.workers(0)};
}

}  // namespace syncline
