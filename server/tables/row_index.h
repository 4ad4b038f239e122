#ifndef SYNCLINE_SERVER_TABLES_ROW_INDEX_H_
#define SYNCLINE_SERVER_TABLES_ROW_INDEX_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/base/check.h"

namespace syncline::ps {

// Finds row numbers by hash: open addressing with linear probing in 32-bit
// entries, each a row number below a tag of hash bits. The number takes as many
// bits as the capacity needs, the tag the rest, so a probe seldom looks at a
// row that is not the one. Any capacity will do, not only powers of two: home
// is a multiplication.
//
// The index does not know its rows' hashes: to grow it, the caller empties it
// and inserts all rows again. It uses a hash's low 48 bits. Thread-compatible.
class RowIndex {
 public:
  static constexpr uint32_t kNone = 0xffffffff;
  static constexpr uint32_t kCapacityMin = 8;

  explicit RowIndex(uint32_t capacity) { Reset(capacity); }

  // Empties it. Row numbers must be below `capacity` - 1.
  // REQUIRES: capacity at least 8, below 2^31: tags need a bit.
  void Reset(uint32_t capacity) {
    SYNCLINE_CHECK(capacity >= kCapacityMin && capacity < (1u << 31));
    if (capacity != capacity_) {
      entries_.reset();  // before the next: never two at a time
      entries_.reset(new uint32_t[capacity]);
    }
    capacity_ = capacity;
    row_bits_ = std::bit_width(capacity);
    used_ = 0;
    std::fill_n(entries_.get(), capacity, kEmpty);
  }

  uint32_t capacity() const { return capacity_; }
  // Entries that are not empty: rows and the tombstones of removed ones.
  uint32_t used() const { return used_; }
  size_t memory_bytes() const { return capacity_ * sizeof(uint32_t); }

  void Prefetch(uint64_t hash) const {
    __builtin_prefetch(&entries_[Home(hash)]);
  }

  // The row with this hash of which same(row) is true; kNone if there is none.
  template <typename Same>
  uint32_t Find(uint64_t hash, Same same) const {
    const uint32_t tag = Tag(hash);
    for (uint32_t i = Home(hash);; i = Next(i)) {
      const uint32_t entry = entries_[i];
      if (entry == kEmpty) return kNone;
      if (entry >> row_bits_ != tag || entry == kTombstone) continue;
      if (same(RowOf(entry))) return RowOf(entry);
    }
  }

  // A row that most likely has this hash, without looking at any.
  uint32_t Guess(uint64_t hash) const {
    return Find(hash, [](uint32_t) { return true; });
  }

  // REQUIRES: no row of the same key is there; used() < capacity() - 1.
  void Insert(uint64_t hash, uint32_t row) {
    uint32_t i = Home(hash);
    while (entries_[i] < kTombstone) i = Next(i);
    if (entries_[i] == kEmpty) ++used_;
    entries_[i] = Tag(hash) << row_bits_ | row;
  }

  // REQUIRES: it was inserted with this hash.
  void Remove(uint64_t hash, uint32_t row) {
    const uint32_t entry = Tag(hash) << row_bits_ | row;
    uint32_t i = Home(hash);
    while (entries_[i] != entry) i = Next(i);
    entries_[i] = kTombstone;
  }

 private:
  // No row has these: their number is above every capacity.
  static constexpr uint32_t kEmpty = 0xffffffff;
  static constexpr uint32_t kTombstone = 0xfffffffe;

  uint32_t Home(uint64_t hash) const {
    return static_cast<uint32_t>(
        uint64_t{static_cast<uint32_t>(hash)} * capacity_ >> 32);
  }
  // From bits above those that decide home.
  uint32_t Tag(uint64_t hash) const {
    return static_cast<uint32_t>(hash >> 16) >> row_bits_;
  }
  uint32_t RowOf(uint32_t entry) const {
    return entry & ((1u << row_bits_) - 1);
  }
  uint32_t Next(uint32_t i) const { return i + 1 == capacity_ ? 0 : i + 1; }

  std::unique_ptr<uint32_t[]> entries_;
  uint32_t capacity_ = 0;
  int row_bits_ = 0;
  uint32_t used_ = 0;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_TABLES_ROW_INDEX_H_
