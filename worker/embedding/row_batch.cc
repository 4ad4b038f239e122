#include "worker/embedding/row_batch.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/base/check.h"

namespace syncline::worker {

int64_t RowBatch::IdsMaxOf(const Options& options) {
  int64_t ids = 0;
  for (const Lookup& lookup : options.lookups) {
    ids += lookup.ids_per_sample * options.samples_max;
  }
  return ids;
}

uint64_t RowBatch::BytesFor(const Options& options) {
  const uint64_t arrays = options.with_gradients ? 2 : 1;
  const uint64_t row =
      arrays * static_cast<uint64_t>(options.dim) * sizeof(float);
  // Keys in three orders, their ages, three lists of places, positions, and the
  // index: up to four entries of 16 bytes for each.
  constexpr uint64_t kBookkeeping = 4 * 8 + 3 * 4 + 4 + 4 * 16;
  return static_cast<uint64_t>(1 + IdsMaxOf(options)) * (row + kBookkeeping);
}

RowBatch::RowBatch(const Options& options, const TableMap& map)
    : options_(options),
      map_(map),
      dim_(static_cast<size_t>(options.dim)),
      capacity_(1 + IdsMaxOf(options)),
      index_(static_cast<size_t>(capacity_)),
      slot_starts_(map.slots() + 1),
      shard_starts_(map.shard_count() + 1),
      shard_next_(map.shard_count()),
      positions_(options.lookups.size()),
      values_(static_cast<size_t>(capacity_) * dim_),
      gradients_(options.with_gradients ? static_cast<size_t>(capacity_) * dim_
                                        : 0) {
  for (std::vector<int64_t>* keys :
       {&keys_, &unsorted_, &as_of_, &wanted_keys_}) {
    keys->reserve(static_cast<size_t>(capacity_));
  }
  wanted_.reserve(static_cast<size_t>(capacity_));
  later_.reserve(static_cast<size_t>(capacity_));
  order_.reserve(static_cast<size_t>(capacity_));
}

void RowBatch::UseMap(const TableMap& map) {
  SYNCLINE_CHECK(map.slots() == map_.slots());
  map_ = map;
  shard_starts_.resize(map.shard_count() + 1);
  shard_next_.resize(map.shard_count());
  GroupByShard();
}

void RowBatch::Collect(const Batch& batch) {
  SYNCLINE_CHECK(batch.size <= options_.samples_max);
  NumberKeys(batch);
  SortBySlot();
  GroupByShard();
  for (std::vector<int32_t>& positions : positions_) {
    for (int32_t& position : positions) {
      if (position > 0)
        position = static_cast<int32_t>(1 + order_[position - 1]);
    }
  }
  WantAll();
}

void RowBatch::CollectKeysOf(const RowBatch& other) {
  SYNCLINE_CHECK(other.map_.slots() == map_.slots() &&
                 other.keys_.size() < static_cast<size_t>(capacity_));
  keys_ = other.keys_;
  index_.Clear();
  for (uint32_t place = 0; place < keys_.size(); ++place) {
    bool is_new = false;
    index_.Insert(keys_[place], place, &is_new);
  }
  slots_ = other.slots_;
  as_of_.assign(keys_.size(), 0);
  GroupByShard();
  for (std::vector<int32_t>& positions : positions_) positions.clear();
  WantAll();
}

std::vector<int64_t> RowBatch::PaddingRows() const {
  std::vector<int64_t> rows;
  for (const Lookup& lookup : options_.lookups) {
    const int64_t key = lookup.padding.value_or(-1);
    if (key >= 0 && key < options_.rows) rows.push_back(key);
  }
  return rows;
}

// positions_ become 1 + the place of the key in unsorted_.
void RowBatch::NumberKeys(const Batch& batch) {
  index_.Clear();
  unsorted_.clear();
  for (size_t l = 0; l < options_.lookups.size(); ++l) {
    const Lookup& lookup = options_.lookups[l];
    positions_[l].clear();
    if (batch.size == 0) continue;
    const std::vector<int64_t>& ids = batch.int_feeds[lookup.feed];
    SYNCLINE_CHECK(ids.size() <=
                   static_cast<size_t>(lookup.ids_per_sample * batch.size));
    positions_[l].resize(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool is_from_end = ids[i] < 0 && ids[i] >= -options_.rows;
      const int64_t key = is_from_end ? ids[i] + options_.rows : ids[i];
      if (lookup.padding == ids[i] || lookup.padding == key) {
        positions_[l][i] = 0;
        continue;
      }
      bool is_new = false;
      const uint32_t number =
          index_.Insert(key, static_cast<uint32_t>(unsorted_.size()), &is_new);
      if (is_new) unsorted_.push_back(key);
      positions_[l][i] = static_cast<int32_t>(1 + number);
    }
  }
}

// keys_ from unsorted_; order_[i] is where unsorted_[i] has gone. Counting by
// slot, then sorting the few keys of each.
void RowBatch::SortBySlot() {
  const size_t n = unsorted_.size();
  std::fill(slot_starts_.begin(), slot_starts_.end(), 0);
  for (const int64_t key : unsorted_) ++slot_starts_[map_.SlotOf(key) + 1];
  slots_.clear();
  for (uint32_t slot = 0; slot < map_.slots(); ++slot) {
    const uint32_t count = slot_starts_[slot + 1];
    slot_starts_[slot + 1] += slot_starts_[slot];
    if (count > 0) slots_.push_back({slot, slot_starts_[slot], count});
  }
  keys_.resize(n);
  as_of_.assign(n, 0);
  for (const int64_t key : unsorted_) {
    keys_[slot_starts_[map_.SlotOf(key)]++] = key;
  }
  for (const SlotRun& run : slots_) {
    std::sort(keys_.begin() + run.first, keys_.begin() + run.first + run.count);
  }
  order_.resize(n);
  for (uint32_t place = 0; place < n; ++place) {
    order_[index_.Find(keys_[place])] = place;
  }
}

void RowBatch::GroupByShard() {
  std::fill(shard_starts_.begin(), shard_starts_.end(), 0);
  for (const SlotRun& run : slots_) {
    ++shard_starts_[map_.ShardOfSlot(run.slot) + 1];
  }
  for (size_t shard = 0; shard + 1 < shard_starts_.size(); ++shard) {
    shard_starts_[shard + 1] += shard_starts_[shard];
    shard_next_[shard] = shard_starts_[shard];
  }
  shard_runs_.resize(slots_.size());
  for (const SlotRun& run : slots_) {
    shard_runs_[shard_next_[map_.ShardOfSlot(run.slot)]++] = run;
  }
}

void RowBatch::WantAll() {
  early_count_ = 0;
  wanted_keys_ = keys_;
  wanted_.resize(keys_.size());
  std::iota(wanted_.begin(), wanted_.end(), 0u);
}

void RowBatch::ClearGradients() {
  std::fill_n(gradients_.data(), (1 + keys_.size()) * dim_, 0.0f);
}

int64_t RowBatch::FindNonFinite() const {
  for (size_t i = 0; i < keys_.size() * dim_; ++i) {
    if (!std::isfinite(values_.data()[dim_ + i])) {
      return static_cast<int64_t>(i / dim_);
    }
  }
  return -1;
}

}  // namespace syncline::worker
