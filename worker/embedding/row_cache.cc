#include "worker/embedding/row_cache.h"

#include <algorithm>
#include <utility>

namespace syncline::worker {

uint64_t RowCache::BytesFor(size_t rows_max, size_t dim) {
  // The map holds keys and numbers, at least half full, with a byte for each.
  constexpr uint64_t kMapEntry =
      2 * (sizeof(std::pair<const int64_t, uint32_t>) + 1);
  return rows_max * (dim * sizeof(float) + sizeof(Slot) + kMapEntry);
}

RowCache::RowCache(size_t rows_max, size_t dim, int64_t clocks)
    : dim_(dim), clocks_(clocks), slots_(rows_max), values_(rows_max * dim) {
  slot_of_.reserve(rows_max);
}

const float* RowCache::Find(int64_t key, int64_t clock, int64_t oldest_as_of) {
  const auto found = slot_of_.find(key);
  if (found == slot_of_.end()) return nullptr;
  Slot& slot = slots_[found->second];
  if (clock < slot.clock || clock - slot.clock > clocks_) return nullptr;
  if (slot.as_of < oldest_as_of) return nullptr;
  slot.touched = true;
  return values_.data() + found->second * dim_;
}

void RowCache::Put(int64_t key, int64_t clock, const float* row,
                   int64_t as_of) {
  if (slots_.empty()) return;
  const auto found = slot_of_.find(key);
  const uint32_t at = found != slot_of_.end() ? found->second : FreeSlot();
  slot_of_[key] = at;
  slots_[at] = {.key = key,
                .clock = clock,
                .as_of = as_of,
                .used = true,
                .touched = false};
  std::copy_n(row, dim_, values_.data() + at * dim_);
}

float* RowCache::Own(int64_t key) {
  const auto found = slot_of_.find(key);
  if (found == slot_of_.end()) return nullptr;
  return values_.data() + found->second * dim_;
}

uint32_t RowCache::FreeSlot() {
  while (slots_[hand_].used && slots_[hand_].touched) {
    slots_[hand_].touched = false;
    hand_ = (hand_ + 1) % slots_.size();
  }
  const uint32_t at = static_cast<uint32_t>(hand_);
  if (slots_[at].used) slot_of_.erase(slots_[at].key);
  hand_ = (hand_ + 1) % slots_.size();
  return at;
}

}  // namespace syncline::worker
