#include "common/wire/routing_table.h"

#include <limits>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace syncline {
namespace {

// The last shards, which are parts of the workers: only in a checkpoint of a
// HYBRID job, which says where blocks are.
uint32_t WorkerShards(const JobAssignment& assignment) {
  return assignment.spec().strategy() == HYBRID &&
                 !assignment.routing().block_shards().empty()
             ? static_cast<uint32_t>(assignment.workers_size())
             : 0;
}

// Those that are on the shards: in HYBRID none, the workers have them.
std::vector<TensorSize> TensorSizes(const JobAssignment& assignment) {
  std::vector<TensorSize> tensors;
  if (assignment.spec().strategy() == HYBRID && WorkerShards(assignment) == 0) {
    return tensors;
  }
  for (const ParameterInfo& parameter : assignment.parameters()) {
    // A product that does not fit is refused by the block map: keep it > 0.
    int64_t count = 1;
    for (const int64_t dim : parameter.dims()) {
      if (dim <= 0 || __builtin_mul_overflow(count, dim, &count)) {
        count = dim <= 0 ? 0 : std::numeric_limits<int64_t>::max();
        break;
      }
    }
    tensors.push_back({parameter.name(), count});
  }
  return tensors;
}

// The rank of the ps of each shard.
absl::StatusOr<std::vector<uint32_t>> ShardPs(const JobAssignment& assignment) {
  const auto& given = assignment.routing().shard_ps();
  const auto ps_count = static_cast<uint32_t>(assignment.ps_size());
  std::vector<uint32_t> shard_ps(given.begin(), given.end());
  if (shard_ps.empty()) {
    shard_ps.resize(ps_count);
    std::iota(shard_ps.begin(), shard_ps.end(), 0);
  }
  for (size_t shard = 0; shard < shard_ps.size(); ++shard) {
    if (shard_ps[shard] < ps_count) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("routing.shard_ps[", shard, "] is ", shard_ps[shard],
                     ", the job has ", ps_count, " ps, numbered from 0"));
  }
  return shard_ps;
}

}  // namespace

absl::StatusOr<RoutingTable> RoutingTable::Create(
    const JobAssignment& assignment) {
  const Routing& routing = assignment.routing();
  if (assignment.has_routing() && routing.version() == 0) {
    return absl::InvalidArgumentError(
        "routing.version is 0, must be at least 1");
  }
  RoutingTable table;
  SYNCLINE_ASSIGN_OR_RETURN(table.shard_ps_, ShardPs(assignment));
  if (assignment.has_routing()) table.version_ = routing.version();
  const auto shards = static_cast<uint32_t>(table.shard_ps_.size());
  absl::StatusOr<BlockMap> blocks =
      BlockMap::Create(TensorSizes(assignment), shards, routing.block_shards());
  if (!blocks.ok()) {
    return routing.block_shards().empty()
               ? blocks.status()
               : Annotate(blocks.status(), "routing.block_shards");
  }
  table.blocks_ = *std::move(blocks);
  const uint32_t of_workers = WorkerShards(assignment);
  if (of_workers >= shards) {
    return absl::InvalidArgumentError(
        absl::StrCat("of ", shards, " shards the workers have ", of_workers,
                     ", and the ps none, which have the rows"));
  }
  table.ps_shard_count_ = shards - of_workers;
  if (!routing.tables().empty() &&
      routing.tables_size() != assignment.tables_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("routing.tables has ", routing.tables_size(),
                     " tables, the job has ", assignment.tables_size()));
  }
  for (int t = 0; t < assignment.tables_size(); ++t) {
    const bool is_given = !routing.tables().empty();
    absl::StatusOr<TableMap> map = TableMap::Create(
        assignment.tables(t).slots(), table.ps_shard_count_,
        is_given ? routing.tables(t).slot_shards()
                 : Routing::Table::default_instance().slot_shards());
    if (!map.ok()) {
      return Annotate(map.status(), absl::StrCat(is_given ? "routing." : "",
                                                 "tables[", t, "]"));
    }
    table.tables_.push_back(*std::move(map));
  }
  return table;
}

std::vector<uint32_t> RoutingTable::ShardsOf(uint32_t ps_rank) const {
  std::vector<uint32_t> shards;
  for (uint32_t shard = 0; shard < shard_count(); ++shard) {
    if (shard_ps_[shard] == ps_rank) shards.push_back(shard);
  }
  return shards;
}

}  // namespace syncline
