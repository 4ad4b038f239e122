#include "server/tables/row_partition.h"

#include <algorithm>
#include <bit>

#include "common/base/aligned_buffer.h"

namespace syncline::ps {
namespace {

// Probes lengthen quickly above this many used entries in 100 ...
constexpr uint64_t kUsedAtMost = 85;
// ... so then the index grows by about a third, to this many. Partitions grow
// each at its own time, but since keys are spread evenly at about the same: it
// is the step that bounds what the index takes.
constexpr uint64_t kUsedAfterGrowth = 65;
// With all rows there: what is left is for tombstones.
constexpr uint64_t kUsedWhenFull = 75;

uint32_t CapacityFor(uint64_t rows, uint64_t percent) {
  return static_cast<uint32_t>(
      std::max<uint64_t>(RowIndex::kCapacityMin, rows * 100 / percent + 2));
}

}  // namespace

uint64_t RowPartition::CostOf(uint64_t row_bytes) {
  constexpr uint64_t kIndexBytes =
      (sizeof(uint32_t) * 100 + kUsedWhenFull - 1) / kUsedWhenFull;
  constexpr uint64_t kMarkBytes = 2;  // one, in a vector that has room to grow
  return row_bytes + kIndexBytes + kMarkBytes;
}

uint32_t RowPartition::RowsFor(uint64_t row_bytes, uint64_t bytes) {
  constexpr uint64_t kFixed = (RowIndex::kCapacityMin + 2) * sizeof(uint32_t);
  if (bytes <= kFixed) return 0;
  return static_cast<uint32_t>(
      std::min<uint64_t>((bytes - kFixed) / CostOf(row_bytes), 1u << 30));
}

RowPartition::RowPartition(const RowLayout& layout, SlabPool* pool,
                           uint32_t rows_per_slab, uint32_t rows_max)
    : layout_(layout),
      pool_(pool),
      slab_shift_(std::countr_zero(rows_per_slab)),
      slab_mask_(rows_per_slab - 1),
      rows_max_(rows_max),
      index_(RowIndex::kCapacityMin) {}

uint64_t RowPartition::memory_bytes() const {
  return slabs_.size() * pool_->slab_bytes() + index_.memory_bytes() +
         marks_.capacity() + slabs_.capacity() * sizeof(char*);
}

void RowPartition::PrefetchRow(uint32_t row) const {
  // The processor prefetches the lines behind the first few by itself.
  constexpr size_t kBytesAtMost = 4 * kCacheLineBytes;
  const char* const begin = At(row);
  const size_t bytes = std::min(layout_.bytes(), kBytesAtMost);
  for (size_t i = 0; i < bytes; i += kCacheLineBytes) {
    __builtin_prefetch(begin + i);
  }
  __builtin_prefetch(begin + bytes - 1);
}

uint32_t RowPartition::TakeRow() {
  if (free_ != kNone) {
    const uint32_t row = free_;
    free_ = static_cast<uint32_t>(RowLayout::Key(At(row)));
    return row;
  }
  if (row_limit_ >> slab_shift_ == slabs_.size()) {
    char* const slab = pool_->Take();
    if (slab == nullptr) return kNone;
    slabs_.push_back(slab);
    const size_t rows = slabs_.size() << slab_shift_;
    if (rows > marks_.capacity()) marks_.reserve(rows + rows / 8);
    marks_.resize(rows);
  }
  return row_limit_++;
}

// Also called when most of what is used are tombstones: then it stays as large.
void RowPartition::GrowIndex() {
  const uint32_t largest = CapacityFor(rows_max_, kUsedWhenFull);
  const uint32_t wanted =
      std::min(largest, CapacityFor(uint64_t{size_} + 1, kUsedAfterGrowth));
  index_.Reset(std::max(wanted, index_.capacity()));
  for (uint32_t row = 0; row < row_limit_; ++row) {
    if (marks_[row] == 0) continue;
    index_.Insert(Hash(RowLayout::Key(At(row))), row);
  }
}

uint32_t RowPartition::Add(int64_t key, uint64_t hash, uint8_t mark) {
  if ((uint64_t{index_.used()} + 1) * 100 >
      uint64_t{index_.capacity()} * kUsedAtMost) {
    GrowIndex();
  }
  const uint32_t row = TakeRow();
  if (row == kNone) return kNone;
  RowLayout::SetKey(At(row), key);
  marks_[row] = mark;
  index_.Insert(hash, row);
  ++size_;
  return row;
}

void RowPartition::Remove(uint32_t row) {
  char* const at = At(row);
  index_.Remove(Hash(RowLayout::Key(at)), row);
  RowLayout::SetKey(at, free_);
  marks_[row] = 0;
  free_ = row;
  --size_;
}

}  // namespace syncline::ps
