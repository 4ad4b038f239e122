#ifndef SYNCLINE_COMMON_WIRE_ROUTING_TABLE_H_
#define SYNCLINE_COMMON_WIRE_ROUTING_TABLE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/wire/block_map.h"
#include "common/wire/table_map.h"
#include "proto/job.pb.h"

namespace syncline {

// The placement of a job's state: block -> shard, virtual slot -> shard, and
// the version that calls to a ps must show. A member reads it from its
// assignment; nobody else decides about placement. Results do not depend on it:
// blocks and slots are reduced, clipped and updated alike wherever they are.
//
// A ps has any number of shards. Immutable, hence thread-safe.
class RoutingTable {
 public:
  // `assignment` without a routing means version 1. Blocks or tables that the
  // routing leaves out have the default placement of BlockMap or TableMap;
  // without shard_ps, shard i is on the ps of rank i.
  // In HYBRID shards have rows and no block; but where `assignment` is that of
  // a checkpoint's manifest (AssignmentOf), its last shards are the workers'.
  // Memory is taken in proportion to the model and the message alone.
  // Errors: InvalidArgument, which names the field ("routing.tables[1]"): a
  // version of 0; a block or slot without a shard, or with one that does not
  // exist; a shard without a slot of a table; a shard on a ps that does not
  // exist; in HYBRID no shard but those of the workers; those of BlockMap and
  // TableMap.
  static absl::StatusOr<RoutingTable> Create(const JobAssignment& assignment);

  uint64_t version() const { return version_; }
  uint32_t shard_count() const { return blocks_.shard_count(); }
  // Those that ps have. More are in a checkpoint of a HYBRID job alone: the
  // parts of its workers, by rank, which have the blocks and no rows.
  uint32_t ps_shard_count() const { return ps_shard_count_; }
  // The rank of the ps that has it.
  uint32_t PsOf(uint32_t shard) const { return shard_ps_[shard]; }
  // The shards of a ps, ascending; may be none.
  std::vector<uint32_t> ShardsOf(uint32_t ps_rank) const;
  const BlockMap& blocks() const { return blocks_; }
  // By their index in JobAssignment.tables.
  absl::Span<const TableMap> tables() const { return tables_; }

 private:
  uint64_t version_ = 1;
  uint32_t ps_shard_count_ = 0;
  std::vector<uint32_t> shard_ps_;
  BlockMap blocks_;
  std::vector<TableMap> tables_;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_WIRE_ROUTING_TABLE_H_
