#include "common/wire/routing_table.h"

#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace syncline {
namespace {

std::vector<TensorSize> TensorSizes(const JobAssignment& assignment) {
  std::vector<TensorSize> tensors;
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

absl::Status CheckShards(const JobAssignment& assignment) {
  const Routing& routing = assignment.routing();
  if (assignment.has_routing() && routing.version() == 0) {
    return absl::InvalidArgumentError(
        "routing.version is 0, must be at least 1");
  }
  if (routing.shard_ps().empty()) return absl::OkStatus();
  if (routing.shard_ps_size() != assignment.ps_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "routing.shard_ps has ", routing.shard_ps_size(), " shards for ",
        assignment.ps_size(), " ps; this version puts one shard on each ps"));
  }
  for (int shard = 0; shard < routing.shard_ps_size(); ++shard) {
    if (routing.shard_ps(shard) == static_cast<uint32_t>(shard)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "routing.shard_ps[", shard, "] is ", routing.shard_ps(shard),
        "; this version puts each shard on the ps of its number"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RoutingTable> RoutingTable::Create(
    const JobAssignment& assignment) {
  SYNCLINE_RETURN_IF_ERROR(CheckShards(assignment));
  const Routing& routing = assignment.routing();
  RoutingTable table;
  if (assignment.has_routing()) table.version_ = routing.version();
  const auto shards = static_cast<uint32_t>(assignment.ps_size());
  absl::StatusOr<BlockMap> blocks =
      BlockMap::Create(TensorSizes(assignment), shards, routing.block_shards());
  if (!blocks.ok()) {
    return routing.block_shards().empty()
               ? blocks.status()
               : Annotate(blocks.status(), "routing.block_shards");
  }
  table.blocks_ = *std::move(blocks);
  if (!routing.tables().empty() &&
      routing.tables_size() != assignment.tables_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("routing.tables has ", routing.tables_size(),
                     " tables, the job has ", assignment.tables_size()));
  }
  for (int t = 0; t < assignment.tables_size(); ++t) {
    const bool is_given = !routing.tables().empty();
    absl::StatusOr<TableMap> map = TableMap::Create(
        assignment.tables(t).slots(), shards,
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

}  // namespace syncline
