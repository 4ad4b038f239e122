#include "server/shard/ps_plan.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/worker_groups.h"
#include "common/regime/job_regimes.h"
#include "common/update/copy_reserve.h"
#include "common/update/dense_updater.h"
#include "common/update/update_spec.h"
#include "server/shard/job_config.h"
#include "server/shard/sent_values.h"

namespace syncline::ps {
namespace {

// The windows of a worker's client, and of the answers to it (README.md).
constexpr int64_t kMessagesPerWorker = 2 * (int64_t{4} << 20);

}  // namespace

absl::StatusOr<std::vector<PsPlan>> PlanPs(
    const JobSpec& spec, absl::Span<const TensorSize> tensors) {
  SYNCLINE_ASSIGN_OR_RETURN(const RegimeSchedule regimes, ReadRegimes(spec));
  // The optimizer of the ps: with DGC the workers have the momentum.
  SYNCLINE_ASSIGN_OR_RETURN(const DenseUpdater::Options update,
                            ReadUpdate(spec, regimes));
  const OptimizerParams& optimizer = update.optimizer;
  // In HYBRID the workers have all tensors.
  if (spec.strategy() == HYBRID) tensors = {};
  SYNCLINE_ASSIGN_OR_RETURN(const BlockMap map,
                            BlockMap::Create(tensors, spec.resources().ps()));
  SYNCLINE_ASSIGN_OR_RETURN(const ConsistencyController::Options controller,
                            ReadController(spec, regimes));
  std::vector<PsPlan> all;
  for (uint32_t shard = 0; shard < map.shard_count(); ++shard) {
    std::vector<size_t> counts;
    for (const uint32_t block : map.shard_blocks(shard)) {
      counts.push_back(static_cast<size_t>(map.blocks()[block].count));
    }
    all.push_back(PlanShard(optimizer, controller, counts, GroupCountMax(spec),
                            /*has_tables=*/spec.tables_size() > 0));
    if (!spec.has_checkpoint()) continue;
    all.back().copy_bytes =
        static_cast<int64_t>(CopyBytes(optimizer, counts, spec.checkpoint()));
  }
  return all;
}

std::optional<uint64_t> CopyLimit(const CheckpointSpec& checkpoint) {
  if (!checkpoint.has_copy_bytes()) return std::nullopt;
  return checkpoint.copy_bytes();
}

uint64_t CopyBytes(const OptimizerParams& optimizer,
                   absl::Span<const size_t> counts,
                   const std::optional<CheckpointSpec>& checkpoint) {
  if (!checkpoint.has_value()) return 0;
  std::vector<size_t> floats;
  for (const size_t count : counts) {
    floats.push_back(count *
                     static_cast<size_t>(1 + OptimizerSlots(optimizer)));
  }
  return CopyReserve::BytesFor(floats, CopyLimit(*checkpoint));
}

PsPlan PlanShard(const OptimizerParams& optimizer,
                 const ConsistencyController::Options& controller,
                 absl::Span<const size_t> counts, uint32_t workers,
                 bool has_tables) {
  const auto elements = static_cast<int64_t>(
      std::accumulate(counts.begin(), counts.end(), size_t{0}));
  const int64_t bytes =
      elements *
      static_cast<int64_t>(ElementBytes(controller.regimes.WidestWireType()));
  PsPlan plan;
  plan.value_bytes = static_cast<int64_t>(DenseUpdater::MemoryBytes(
      OptimizerParams(), counts, /*with_reduced=*/false));
  plan.slot_bytes = static_cast<int64_t>(DenseUpdater::MemoryBytes(
                        optimizer, counts, /*with_reduced=*/false)) -
                    plan.value_bytes;
  if (controller.regimes.AnySync() || controller.comes_to_sync) {
    // Gradients that wait for the other workers: as they came, and folded, if
    // the norm is waited for too. Where the set of a clock is waited for, all.
    const int64_t waiting =
        int64_t{workers} - (controller.quorum.has_value() ? 0 : 1);
    plan.waiting_bytes =
        waiting * bytes + (controller.NeedsGradientNorm()
                               ? elements * int64_t{sizeof(float)}
                               : 0);
  }
  if (const TrainingRegime& first = controller.regimes.regimes()[0];
      first.SendsChanges()) {
    plan.value_bytes += static_cast<int64_t>(
        SentValues::MemoryBytes(counts, first.compression.block_elements));
  }
  // How many rows a batch has is not known here.
  const int64_t of_worker =
      has_tables ? kMessagesPerWorker : std::min(2 * bytes, kMessagesPerWorker);
  plan.message_bytes = int64_t{workers} * of_worker;
  return plan;
}

absl::StatusOr<std::vector<PlannedTable>> PlanTables(
    const JobSpec& spec, absl::Span<const TrainingTable> tables) {
  std::vector<PlannedTable> all;
  for (size_t t = 0; t < tables.size(); ++t) {
    TableOptions options;
    options.dim = tables[t].dim;
    SYNCLINE_ASSIGN_OR_RETURN(options.optimizer,
                              ReadTableOptimizer(spec, static_cast<int>(t)));
    all.push_back({.name = tables[t].name,
                   .dim = int64_t{tables[t].dim},
                   .rows = tables[t].rows,
                   .row_bytes = static_cast<int64_t>(
                       TableShard::MemoryRowBytes(options))});
  }
  return all;
}

}  // namespace syncline::ps
