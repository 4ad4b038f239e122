#ifndef SYNCLINE_SERVER_TABLES_TABLE_LANE_H_
#define SYNCLINE_SERVER_TABLES_TABLE_LANE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/update/row_expiry.h"
#include "common/wire/table_map.h"
#include "server/tables/cold_store.h"
#include "server/tables/gradient_merge.h"
#include "server/tables/hot_keys.h"
#include "server/tables/table_options.h"
#include "server/tables/table_partition.h"

namespace syncline::ps {

// Values that all rows of one push share.
struct RowStep {
  int64_t clock = 0;
  float learning_rate = 0;
  // Turns the gradient of the summed loss into that of the mean: 1 / samples of
  // all ranks, times the norm's scale where the global norm is clipped.
  float gradient_scale = 1;
  // Gets the keys whose gradient is not finite; null: not wanted.
  std::vector<int64_t>* non_finite = nullptr;
};

// Which partition has a slot: neighbours among a shard's slots share one.
class PartitionMap {
 public:
  PartitionMap(const TableMap& map, uint32_t shard, uint32_t partitions);

  uint32_t partitions() const { return partitions_; }
  SlotOf slot_of() const { return {shift_}; }
  // Ascending.
  std::vector<uint32_t> SlotsOf(uint32_t partition) const;
  uint32_t OfSlot(uint32_t slot) const { return of_slot_[slot]; }
  uint32_t OfHash(uint64_t hash) const { return of_slot_[hash >> shift_]; }
  // Which of the shard's slots, from 0.
  uint32_t SlotIndex(uint64_t hash) const {
    return map_.SlotIndex(static_cast<uint32_t>(hash >> shift_));
  }

 private:
  TableMap map_;
  uint32_t shard_;
  uint32_t partitions_;
  int shift_;
  std::vector<uint16_t> of_slot_;  // by slot of the table; others': 0
};

// The partitions that one lane of a table has, and its work on rows: batches of
// keys are looked for in groups, so that the memory that one key needs is on
// its way while others are worked on, and those that are not in memory are
// asked of the cold store together. Thread-compatible.
class TableLane {
 public:
  // Has the partitions [begin, end) of `partitions`, made by the caller.
  TableLane(TableContext* context, const TableMap& map,
            const PartitionMap* partition_of);
  TableLane(const TableLane&) = delete;
  TableLane& operator=(const TableLane&) = delete;

  // Partitions come in order, the first call says which is the first.
  void AddPartition(uint32_t id, uint32_t rows_per_slab, uint32_t rows_max,
                    size_t filter_bytes);
  bool Has(uint32_t partition) const {
    return partition - first_partition_ < partitions_.size();
  }

  // As in TableShard.
  absl::Status Push(absl::Span<const GradientRows> ranks, const RowStep& step);
  void SquaredNorms(absl::Span<const GradientRows> ranks, const RowStep& step,
                    absl::Span<double> by_slot);
  absl::Status Read(absl::Span<const int64_t> keys, int64_t clock, float* out);
  absl::Status Maintain(int64_t clock, absl::Time now);
  absl::Status Scan(uint32_t partition, int64_t clock, size_t limit,
                    uint64_t* from, bool* more, std::vector<int64_t>* keys,
                    std::vector<float>* values);
  TableStats Stats() const;
  TablePartition& partition(uint32_t id) {
    return *partitions_[id - first_partition_];
  }
  TableLaneState Export(absl::Time now) const;
  // Adds counts, and of this lane's keys the pushes.
  void Import(const TableLaneState& state, absl::Time now);

 private:
  // Rows that are looked for at a time: enough to hide the time of memory, few
  // enough for the first-level cache.
  static constexpr size_t kGroupRows = 64;

  struct Group {
    size_t size = 0;
    int64_t keys[kGroupRows];
    uint64_t hashes[kGroupRows];
    TablePartition* partitions[kGroupRows];
    uint32_t rows[kGroupRows];
    // The gradients and values of the rows to be updated, without gaps.
    const float* gradients[kGroupRows];
    float* values[kGroupRows];
  };

  // Rows that are not in memory, put aside until there are many of them.
  struct Missing {
    std::vector<int64_t> keys;
    std::vector<uint64_t> hashes;
    std::vector<TablePartition*> partitions;
    std::vector<float> gradients;  // Push: [rows x dim]
    std::vector<float*> outs;      // Read: where the values go
  };

  TablePartition& PartitionOf(uint64_t hash) {
    return *partitions_[partition_of_->OfHash(hash) - first_partition_];
  }
  // From group_.keys: hashes, partitions, and rows (kNone: not in memory).
  void Locate();
  // Takes the next rows of merge_ into group_ and gradients_, only those whose
  // gradients are finite, in front. False: that was all.
  bool NextGroup(const RowStep& step);
  void KeepFinite(const RowStep& step);
  // Updates the score and the clock of a row for one push. Returns the row.
  char* Record(TablePartition* partition, uint32_t row, uint32_t clock);
  void Apply(const RowStep& step, size_t count);
  absl::Status PushGroup(const float* gradients, const RowStep& step);
  absl::Status ReadGroup(uint32_t clock, float* out);
  void PutAside(size_t i);
  // Reads the missing rows that the cold store has into cold_rows_. found_ and
  // SpilledOf tell which it has.
  absl::Status LoadMissing();
  const char* SpilledOf(size_t i) const {
    return found_[i] == ColdFound::kYes ? cold_rows_.data() + cold_at_[i]
                                        : nullptr;
  }
  absl::Status PushMissing(const RowStep& step);
  absl::Status ReadMissing(uint32_t clock);
  void ClearMissing();

  TableContext* const context_;
  const PartitionMap* const partition_of_;
  const size_t dim_;
  const size_t missing_limit_;
  uint32_t first_partition_ = 0;
  PartitionScratch scratch_;
  std::vector<std::unique_ptr<TablePartition>> partitions_;
  GradientMerge merge_;
  TableStats counts_;
  HotKeys hot_keys_;
  ClockHistory history_;
  size_t maintained_ = 0;  // partition where Maintain continues

  // Scratch.
  Group group_;
  AlignedFloats gradients_;
  Missing missing_;
  std::vector<ColdKey> cold_keys_;
  std::vector<char> cold_rows_;
  std::vector<size_t> cold_at_;
  std::vector<ColdFound> cold_found_;
  std::vector<ColdFound> found_;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_TABLES_TABLE_LANE_H_
