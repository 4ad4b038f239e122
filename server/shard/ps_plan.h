#ifndef SYNCLINE_SERVER_SHARD_PS_PLAN_H_
#define SYNCLINE_SERVER_SHARD_PS_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/job_plan.h"
#include "common/model/training_tables.h"
#include "common/wire/block_map.h"
#include "kernels/optimizer/optimizer.h"
#include "proto/job_spec.pb.h"
#include "server/consistency/consistency_controller.h"

namespace syncline::ps {

// Bytes that each ps of a job needs for its dense tensors, by shard, computed
// with the code that opens a shard. Rows of tables are in the messages alone.
// Takes no memory. REQUIRES: `spec` has its defaults. Errors:
// InvalidArgument: something that is not built; BlockMap's.
absl::StatusOr<std::vector<PsPlan>> PlanPs(
    const JobSpec& spec, absl::Span<const TensorSize> tensors);

// The bytes that CheckpointSpec.copy_bytes allows for copies of such blocks. 0:
// the job has no checkpoints.
uint64_t CopyBytes(const OptimizerParams& optimizer,
                   absl::Span<const size_t> counts,
                   const std::optional<CheckpointSpec>& checkpoint);
// The same of the spec. Unset: a place for each block.
std::optional<uint64_t> CopyLimit(const CheckpointSpec& checkpoint);

// Memory of one shard: of blocks of `counts` elements in a job that
// `controller` keeps in step, in the regime that takes most, those of its rules
// included. `has_tables`: its messages have rows, too.
PsPlan PlanShard(const OptimizerParams& optimizer,
                 const ConsistencyController::Options& controller,
                 absl::Span<const size_t> counts, uint32_t workers,
                 bool has_tables);

// Bytes that a row of each table of a job needs; `tables` are the job's tables.
// REQUIRES: as PlanPs. Errors: InvalidArgument: an optimizer that is not built.
absl::StatusOr<std::vector<PlannedTable>> PlanTables(
    const JobSpec& spec, absl::Span<const TrainingTable> tables);

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SHARD_PS_PLAN_H_
