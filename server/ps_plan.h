#ifndef SYNCLINE_SERVER_PS_PLAN_H_
#define SYNCLINE_SERVER_PS_PLAN_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/job_plan.h"
#include "common/wire/block_map.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// What each ps of a job takes for its dense tensors, by shard, with the code
// that a shard is opened with. Takes no memory. REQUIRES: `spec` has its
// defaults. Errors: InvalidArgument: an optimizer that is not built;
// BlockMap's.
absl::StatusOr<std::vector<PsPlan>> PlanPs(
    const JobSpec& spec, absl::Span<const TensorSize> tensors);

}  // namespace syncline

#endif  // SYNCLINE_SERVER_PS_PLAN_H_
