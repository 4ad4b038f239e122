#include "common/wire/table_map.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace syncline {
namespace {

constexpr uint32_t kSlotsPerShard = 32;
constexpr uint32_t kSlotsDefaultMin = 256;
constexpr uint32_t kSlotsMin = 2;
constexpr uint32_t kSlotsMax = 65536;

}  // namespace

uint32_t TableMap::DefaultSlots(uint32_t shard_count) {
  const uint64_t wanted = std::max<uint64_t>(
      kSlotsDefaultMin, uint64_t{kSlotsPerShard} * shard_count);
  return static_cast<uint32_t>(
      std::min<uint64_t>(std::bit_ceil(wanted), kSlotsMax));
}

absl::StatusOr<TableMap> TableMap::Create(uint32_t slots,
                                          uint32_t shard_count) {
  if (!std::has_single_bit(slots) || slots < kSlotsMin || slots > kSlotsMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a table of ", slots, " virtual slots, expected a power of two in ",
        kSlotsMin, "..", kSlotsMax));
  }
  if (shard_count == 0 || shard_count > slots) {
    return absl::InvalidArgumentError(
        absl::StrCat("a table of ", slots, " virtual slots on ", shard_count,
                     " shards, expected 1..", slots));
  }
  return TableMap(slots, shard_count);
}

absl::Status TableMap::CutBySlot(absl::Span<const int64_t> keys, uint32_t shard,
                                 std::vector<SlotRun>* runs) const {
  runs->clear();
  const uint32_t first_slot = FirstSlot(shard);
  const uint32_t slot_count = SlotCount(shard);
  for (uint32_t i = 0; i < keys.size(); ++i) {
    const uint32_t slot = SlotOf(keys[i]);
    if (slot - first_slot >= slot_count) {
      return absl::InvalidArgumentError(absl::StrCat(
          "key ", keys[i], " at position ", i, " belongs to shard ",
          ShardOfSlot(slot), ", not to shard ", shard));
    }
    if (!runs->empty() && runs->back().slot == slot && keys[i - 1] < keys[i]) {
      ++runs->back().count;
    } else if (runs->empty() || runs->back().slot < slot) {
      runs->push_back({.slot = slot, .first = i, .count = 1});
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          "key ", keys[i], " at position ", i, " follows key ", keys[i - 1],
          ": keys ascend by (virtual slot, key) and are unique"));
    }
  }
  return absl::OkStatus();
}

}  // namespace syncline
