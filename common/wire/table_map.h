#ifndef SYNCLINE_COMMON_WIRE_TABLE_MAP_H_
#define SYNCLINE_COMMON_WIRE_TABLE_MAP_H_

#include <bit>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/random.h"

namespace syncline {

// Rows of one virtual slot within a list of keys: [first, first + count).
struct SlotRun {
  uint32_t slot = 0;
  uint32_t first = 0;
  uint32_t count = 0;  // > 0
};

// Places the rows of an embedding table: key -> virtual slot -> shard. A pure
// function of its arguments, so every member places alike; the slot of a key
// does not depend on the shards. Immutable, hence thread-safe; copies share the
// placement.
//
//   slot  = the top bits of Mix64(key), so that what is hashed by the bits
//           below is spread evenly within a slot
//   shard = by default contiguous ranges of slots that differ by at most one
//           slot. A routing may place each slot anywhere
//           (common/wire/routing_table.h), so nothing may count on ranges.
class TableMap {
 public:
  // The number of slots of a job's tables: 32 slots a shard, rounded up to a
  // power of two, and at least 256, so that even one shard has enough of them
  // to move some away.
  static uint32_t DefaultSlots(uint32_t shard_count);

  // Errors: InvalidArgument: `slots` is not a power of two in 2..65,536, or
  // there are more shards than slots, or none.
  static absl::StatusOr<TableMap> Create(uint32_t slots, uint32_t shard_count);
  // `slot_shards`: the shard of each slot; empty: the default placement.
  // Errors: as above, or InvalidArgument: not one shard for each slot, a shard
  // that does not exist, or a shard without a slot.
  static absl::StatusOr<TableMap> Create(
      uint32_t slots, uint32_t shard_count,
      absl::Span<const uint32_t> slot_shards);

  uint32_t slots() const { return slots_; }
  uint32_t shard_count() const {
    return static_cast<uint32_t>(placement_->shard_slots.size());
  }

  uint32_t SlotOf(int64_t key) const {
    return static_cast<uint32_t>(Mix64(static_cast<uint64_t>(key)) >> shift_);
  }
  uint32_t ShardOfSlot(uint32_t slot) const {
    return placement_->shard_of[slot];
  }
  uint32_t ShardOf(int64_t key) const { return ShardOfSlot(SlotOf(key)); }

  // The slots of a shard, ascending; at least one.
  absl::Span<const uint32_t> shard_slots(uint32_t shard) const {
    return placement_->shard_slots[shard];
  }
  uint32_t SlotCount(uint32_t shard) const {
    return static_cast<uint32_t>(shard_slots(shard).size());
  }
  // Which of its shard's slots a slot is, from 0.
  uint32_t SlotIndex(uint32_t slot) const { return placement_->index_of[slot]; }

  // The order of rows in messages.
  bool Before(int64_t a, int64_t b) const {
    const uint32_t slot_a = SlotOf(a);
    const uint32_t slot_b = SlotOf(b);
    return slot_a != slot_b ? slot_a < slot_b : a < b;
  }

  // Cuts a message's keys for `shard` into its slots; `runs` is overwritten,
  // slots ascending. One pass, one hash a key.
  // Errors: InvalidArgument, naming position and key: one that does not ascend
  // by (slot, key), or that belongs to another shard. `runs` is then
  // unspecified.
  absl::Status CutBySlot(absl::Span<const int64_t> keys, uint32_t shard,
                         std::vector<SlotRun>* runs) const;

 private:
  struct Placement {
    std::vector<uint32_t> shard_of;                  // by slot
    std::vector<uint32_t> index_of;                  // by slot
    std::vector<std::vector<uint32_t>> shard_slots;  // by shard
  };

  TableMap(uint32_t slots, std::shared_ptr<const Placement> placement)
      : slots_(slots),
        shift_(64 - std::countr_zero(slots)),
        placement_(std::move(placement)) {}

  uint32_t slots_;
  int shift_;
  std::shared_ptr<const Placement> placement_;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_WIRE_TABLE_MAP_H_
