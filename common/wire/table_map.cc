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
  return Create(slots, shard_count, {});
}

absl::StatusOr<TableMap> TableMap::Create(
    uint32_t slots, uint32_t shard_count,
    absl::Span<const uint32_t> slot_shards) {
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
  if (!slot_shards.empty() && slot_shards.size() != slots) {
    return absl::InvalidArgumentError(
        absl::StrCat(slot_shards.size(),
                     " virtual slots are placed, the table "
                     "has ",
                     slots));
  }
  auto placement = std::make_shared<Placement>();
  placement->shard_slots.resize(shard_count);
  placement->shard_of.reserve(slots);
  placement->index_of.reserve(slots);
  for (uint32_t slot = 0; slot < slots; ++slot) {
    const uint32_t shard =
        slot_shards.empty()
            ? static_cast<uint32_t>(uint64_t{slot} * shard_count / slots)
            : slot_shards[slot];
    if (shard >= shard_count) {
      return absl::InvalidArgumentError(
          absl::StrCat("virtual slot ", slot, " is placed on shard ", shard,
                       ", there are ", shard_count, " shards"));
    }
    placement->shard_of.push_back(shard);
    placement->index_of.push_back(
        static_cast<uint32_t>(placement->shard_slots[shard].size()));
    placement->shard_slots[shard].push_back(slot);
  }
  for (uint32_t shard = 0; shard < shard_count; ++shard) {
    if (placement->shard_slots[shard].empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("shard ", shard, " has no virtual slot"));
    }
  }
  return TableMap(slots, std::move(placement));
}

absl::Status TableMap::CutBySlot(absl::Span<const int64_t> keys, uint32_t shard,
                                 std::vector<SlotRun>* runs) const {
  runs->clear();
  const uint32_t* const shard_of = placement_->shard_of.data();
  for (uint32_t i = 0; i < keys.size(); ++i) {
    const uint32_t slot = SlotOf(keys[i]);
    if (shard_of[slot] != shard) {
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
