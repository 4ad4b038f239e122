#ifndef SYNCLINE_COMMON_WIRE_TABLE_MAP_H_
#define SYNCLINE_COMMON_WIRE_TABLE_MAP_H_

#include <bit>
#include <cstdint>
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
// function of (slots, shard_count), so every member places alike; the slot of a
// key does not depend on shard_count. Immutable, hence thread-safe.
//
//   slot  = the top bits of Mix64(key), so that what is hashed by the bits
//           below is spread evenly within a slot
//   shard = contiguous ranges of slots that differ by at most one slot: keys
//           that ascend by (slot, key) ascend by shard too, so a batch is cut
//           by binary search, and a shard's slots by its lanes in the same way
class TableMap {
 public:
  // The number of slots of a job's tables: 32 slots a shard, rounded up to a
  // power of two, and at least 256, so that even one shard has enough of them
  // to move some away.
  static uint32_t DefaultSlots(uint32_t shard_count);

  // Errors: InvalidArgument: `slots` is not a power of two in 2..65,536, or
  // there are more shards than slots, or none.
  static absl::StatusOr<TableMap> Create(uint32_t slots, uint32_t shard_count);

  uint32_t slots() const { return slots_; }
  uint32_t shard_count() const { return shard_count_; }

  uint32_t SlotOf(int64_t key) const {
    return static_cast<uint32_t>(Mix64(static_cast<uint64_t>(key)) >> shift_);
  }
  uint32_t ShardOfSlot(uint32_t slot) const {
    return static_cast<uint32_t>(uint64_t{slot} * shard_count_ >> log2_slots_);
  }
  uint32_t ShardOf(int64_t key) const { return ShardOfSlot(SlotOf(key)); }

  // The slots of a shard are [FirstSlot(shard), FirstSlot(shard + 1)).
  uint32_t FirstSlot(uint32_t shard) const {
    return static_cast<uint32_t>((uint64_t{shard} * slots_ + shard_count_ - 1) /
                                 shard_count_);
  }
  uint32_t SlotCount(uint32_t shard) const {
    return FirstSlot(shard + 1) - FirstSlot(shard);
  }

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
  TableMap(uint32_t slots, uint32_t shard_count)
      : slots_(slots),
        shard_count_(shard_count),
        log2_slots_(std::countr_zero(slots)),
        shift_(64 - log2_slots_) {}

  uint32_t slots_;
  uint32_t shard_count_;
  int log2_slots_;
  int shift_;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_WIRE_TABLE_MAP_H_
