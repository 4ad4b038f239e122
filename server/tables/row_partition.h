#ifndef SYNCLINE_SERVER_TABLES_ROW_PARTITION_H_
#define SYNCLINE_SERVER_TABLES_ROW_PARTITION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/random.h"
#include "common/state/row_layout.h"
#include "server/memory/slab_pool.h"
#include "server/tables/row_index.h"

namespace syncline::ps {

// The rows of one partition of a table in memory: slabs of rows, an index over
// them that grows by itself, a mark per row, and a list of free rows. Never
// more than `rows_max` rows. Thread-compatible.
//
// A mark says that the row is there (any bit), and what its owner likes to
// remember.
class RowPartition {
 public:
  static constexpr uint32_t kNone = RowIndex::kNone;

  // Bytes that a row of `row_bytes` takes with its share of index and marks,
  // once all rows are there; and the number of rows that `bytes` are enough
  // for.
  static uint64_t CostOf(uint64_t row_bytes);
  static uint32_t RowsFor(uint64_t row_bytes, uint64_t bytes);

  // `rows_per_slab`: a power of two; so many fit into the pool's slabs.
  RowPartition(const RowLayout& layout, SlabPool* pool, uint32_t rows_per_slab,
               uint32_t rows_max);

  static uint64_t Hash(int64_t key) {
    return Mix64(static_cast<uint64_t>(key));
  }

  uint32_t size() const { return size_; }
  uint32_t rows_max() const { return rows_max_; }
  bool full() const { return size_ >= rows_max_; }
  // Row numbers are below this; some of them may be free.
  uint32_t row_limit() const { return row_limit_; }
  uint64_t memory_bytes() const;

  char* At(uint32_t row) const {
    return slabs_[row >> slab_shift_] + (row & slab_mask_) * layout_.bytes();
  }
  uint8_t& mark(uint32_t row) { return marks_[row]; }
  uint8_t mark(uint32_t row) const { return marks_[row]; }

  // Three steps to look for many keys at once: the index's line; then the
  // row's, by Guess; then its key, and Find for those whose guess has another
  // one.
  void PrefetchIndex(uint64_t hash) const { index_.Prefetch(hash); }
  uint32_t Guess(uint64_t hash) const { return index_.Guess(hash); }
  void PrefetchRow(uint32_t row) const;
  uint32_t Find(int64_t key, uint64_t hash) const {
    return index_.Find(
        hash, [&](uint32_t row) { return RowLayout::Key(At(row)) == key; });
  }

  // A row with this key and mark; the rest of it is undefined. kNone: the
  // system has no memory left. REQUIRES: !full(), the key is not there, mark
  // is not 0.
  uint32_t Add(int64_t key, uint64_t hash, uint8_t mark);
  void Remove(uint32_t row);

 private:
  uint32_t TakeRow();
  void GrowIndex();

  const RowLayout layout_;
  SlabPool* const pool_;
  const int slab_shift_;
  const uint32_t slab_mask_;
  const uint32_t rows_max_;
  RowIndex index_;
  std::vector<char*> slabs_;
  std::vector<uint8_t> marks_;
  uint32_t size_ = 0;
  uint32_t row_limit_ = 0;
  uint32_t free_ = kNone;  // first free row; each holds the next in its key
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_TABLES_ROW_PARTITION_H_
