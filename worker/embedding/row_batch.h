#ifndef SYNCLINE_WORKER_EMBEDDING_ROW_BATCH_H_
#define SYNCLINE_WORKER_EMBEDDING_ROW_BATCH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/wire/table_map.h"
#include "worker/data/batch.h"
#include "worker/embedding/key_index.h"

namespace syncline::worker {

// The rows of one embedding table that one batch reads: its keys, each once, in
// the order of messages; their values; and the sums of their gradients. A model
// sees only these rows of the table, with positions in place of keys:
//
//   row 0      zeros, for keys that are padding; neither pulled nor pushed
//   row 1 + i  key i
//
// All memory is taken when it is made; it stays at its address. Thread-
// compatible.
class RowBatch {
 public:
  // Where keys come from.
  struct Lookup {
    int feed = 0;                // index into Batch::int_feeds
    int64_t ids_per_sample = 0;  // at most; batches of one length have fewer
    // The key that stands for none, also where an id counts it from the end.
    std::optional<int64_t> padding = {};
  };
  struct Options {
    std::string name = {};
    int64_t dim = 0;
    int64_t samples_max = 0;  // of a batch
    // Ids -rows..-1 count from the end, as Gather's indices do. 0: the model
    // says no number, and each id is a key.
    int64_t rows = 0;
    std::vector<Lookup> lookups = {};
    bool with_gradients = false;
  };
  // Bytes that a RowBatch takes when it is made.
  static uint64_t BytesFor(const Options& options);
  // Ids of a batch, at most; positions are 32 bits.
  static constexpr int64_t kIdsMax = int64_t{1} << 30;
  static int64_t IdsMaxOf(const Options& options);

  // REQUIRES: IdsMaxOf(options) <= kIdsMax.
  RowBatch(const Options& options, const TableMap& map);
  RowBatch(const RowBatch&) = delete;
  RowBatch& operator=(const RowBatch&) = delete;

  // Assigns the rows to the shards of another placement of the same slots.
  void UseMap(const TableMap& map);
  // Takes the keys of `batch`, which has at most samples_max samples, and
  // selects all of them to be pulled. Values are undefined then.
  void Collect(const Batch& batch);
  // The same with the keys that `other`, of the same table and no larger than
  // this, has now, in its order. No lookup has a position then.
  void CollectKeysOf(const RowBatch& other);

  const std::string& name() const { return options_.name; }
  int64_t dim() const { return options_.dim; }
  // Of a table whose number of rows is known: those that stand for none in a
  // lookup.
  std::vector<int64_t> PaddingRows() const;
  const TableMap& map() const { return map_; }

  // [n], unique, ascending by (slot, key).
  absl::Span<const int64_t> keys() const { return keys_; }
  // The keys by slot, in their order.
  absl::Span<const SlotRun> slots() const { return slots_; }
  // Those of slots() that are on `shard`, in their order.
  absl::Span<const SlotRun> ShardSlots(uint32_t shard) const {
    return absl::MakeSpan(shard_runs_)
        .subspan(shard_starts_[shard],
                 shard_starts_[shard + 1] - shard_starts_[shard]);
  }

  // [n, dim], by key.
  float* value(size_t key) { return values_.data() + (1 + key) * dim_; }
  const float* gradient(size_t key) const {
    return gradients_.data() + (1 + key) * dim_;
  }
  // All of them.
  absl::Span<const float> values() const {
    return {values_.data() + dim_, keys_.size() * dim_};
  }
  absl::Span<float> gradients() {
    return {gradients_.data() + dim_, keys_.size() * dim_};
  }

  // True if `key` is among keys().
  bool Reads(int64_t key) const {
    return index_.Find(key) != KeyIndex::kAbsent;
  }

  // Of a key that was pulled: all workers' steps before it are in its value.
  int64_t as_of(size_t key) const { return as_of_[key]; }
  void SetAsOf(size_t key, int64_t clock) { as_of_[key] = clock; }

  // The keys to be pulled, and where in keys() each one is. First come those
  // that are wanted early, then the others; in each part a subsequence of
  // keys(). Collect wants all of them, none early.
  absl::Span<const int64_t> wanted_keys() const { return wanted_keys_; }
  absl::Span<const uint32_t> wanted() const { return wanted_; }
  size_t early_count() const { return early_count_; }
  enum class When { kEarly, kLater, kNever };
  // Wants each key when `when(i)` says, i being its place in keys(); asked once
  // for each, in order.
  template <typename WhenOf>
  void WantWhen(WhenOf when);
  // Wants those keys early of which `early(key)` is true.
  template <typename Early>
  void WantEarly(Early early) {
    WantWhen([&](size_t i) {
      return early(keys_[i]) ? When::kEarly : When::kLater;
    });
  }
  // Wants only those of which `wanted(i)` is true, i being the place in keys().
  template <typename Wanted>
  void WantOnly(Wanted wanted) {
    WantWhen([&](size_t i) { return wanted(i) ? When::kLater : When::kNever; });
  }

  // For the executor: [1 + n, dim], capacity() rows at most.
  int64_t capacity() const { return capacity_; }
  const float* rows() const { return values_.data(); }
  float* row_gradients() { return gradients_.data(); }
  // Of a lookup's ids, in their order: which row each one reads.
  absl::Span<const int32_t> positions(size_t lookup) const {
    return positions_[lookup];
  }
  // Zeroes what the backward pass adds up in.
  void ClearGradients();
  // Place in keys() of the first row that holds NaN or infinity; -1: none.
  int64_t FindNonFinite() const;

 private:
  void NumberKeys(const Batch& batch);
  void SortBySlot();
  void GroupByShard();
  void WantAll();
  void Want(size_t i) {
    wanted_.push_back(static_cast<uint32_t>(i));
    wanted_keys_.push_back(keys_[i]);
  }

  const Options options_;
  TableMap map_;
  const size_t dim_;
  int64_t capacity_ = 1;
  KeyIndex index_;
  std::vector<int64_t> keys_;
  std::vector<int64_t> unsorted_;      // keys in order of appearance
  std::vector<uint32_t> slot_starts_;  // [slots + 1], scratch
  std::vector<uint32_t> order_;        // by place in unsorted_, scratch
  std::vector<SlotRun> slots_;
  std::vector<SlotRun> shard_runs_;     // slots_ by (shard, slot)
  std::vector<uint32_t> shard_starts_;  // [shards + 1], in shard_runs_
  std::vector<uint32_t> shard_next_;    // [shards], scratch
  std::vector<int64_t> as_of_;          // by key
  std::vector<int64_t> wanted_keys_;
  std::vector<uint32_t> wanted_;
  std::vector<uint32_t> later_;  // scratch
  size_t early_count_ = 0;
  std::vector<std::vector<int32_t>> positions_;  // by lookup
  AlignedFloats values_;
  AlignedFloats gradients_;
};

// Implementation.

template <typename WhenOf>
void RowBatch::WantWhen(WhenOf when) {
  wanted_.clear();
  wanted_keys_.clear();
  later_.clear();
  for (size_t i = 0; i < keys_.size(); ++i) {
    const When of_key = when(i);
    if (of_key == When::kEarly) Want(i);
    if (of_key == When::kLater) later_.push_back(static_cast<uint32_t>(i));
  }
  early_count_ = wanted_.size();
  for (const uint32_t i : later_) Want(i);
}

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EMBEDDING_ROW_BATCH_H_
