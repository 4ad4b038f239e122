#include "server/ps_plan.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "server/dense_shard.h"
#include "server/job_config.h"

namespace syncline {
namespace {

// The windows of a worker's client, and of the answers to it (README.md).
constexpr int64_t kMessagesPerWorker = 2 * (int64_t{4} << 20);

bool IsSync(const JobSpec& spec) {
  return spec.consistency().mode() == ConsistencySpec::SYNC;
}

// Gradients of all its blocks that a shard holds while it waits.
int64_t GradientsKept(const JobSpec& spec) {
  if (!IsSync(spec)) return 0;
  const bool folds =
      spec.optimizer().clip_norm() > 0 ||
      (spec.non_finite() == SKIP_STEP && spec.tables_size() == 0);
  return int64_t{spec.resources().workers()} - 1 + (folds ? 1 : 0);
}

}  // namespace

absl::StatusOr<std::vector<PsPlan>> PlanPs(
    const JobSpec& spec, absl::Span<const TensorSize> tensors) {
  SYNCLINE_ASSIGN_OR_RETURN(const OptimizerParams optimizer,
                            ReadOptimizer("optimizer", spec.optimizer()));
  SYNCLINE_ASSIGN_OR_RETURN(const BlockMap map,
                            BlockMap::Create(tensors, spec.resources().ps()));
  std::vector<PsPlan> all;
  for (uint32_t shard = 0; shard < map.shard_count(); ++shard) {
    std::vector<size_t> counts;
    for (const uint32_t block : map.shard_blocks(shard)) {
      counts.push_back(static_cast<size_t>(map.blocks()[block].count));
    }
    const int64_t bytes = map.shard_elements(shard) * int64_t{sizeof(float)};
    PsPlan plan;
    plan.value_bytes = static_cast<int64_t>(
        DenseShard::MemoryBytes(OptimizerParams(), counts, /*folds=*/false));
    plan.slot_bytes = static_cast<int64_t>(DenseShard::MemoryBytes(
                          optimizer, counts, /*folds=*/false)) -
                      plan.value_bytes;
    plan.waiting_bytes = GradientsKept(spec) * bytes;
    plan.message_bytes = int64_t{spec.resources().workers()} *
                         std::min(2 * bytes, kMessagesPerWorker);
    all.push_back(plan);
  }
  return all;
}

}  // namespace syncline
