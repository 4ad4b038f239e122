#ifndef SYNCLINE_SERVER_TABLES_TABLE_SHARD_H_
#define SYNCLINE_SERVER_TABLES_TABLE_SHARD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/wire/table_map.h"
#include "server/tables/cold_store.h"
#include "server/tables/gradient_merge.h"
#include "server/tables/table_lane.h"
#include "server/tables/table_options.h"
#include "server/tables/table_state.h"

namespace syncline::ps {

// Where a scan continues: in `partition`, at a ColdPosition.
struct ScanCursor {
  uint32_t partition = 0;
  uint64_t position = 0;

  // 12 bytes, for messages.
  std::string Encode() const;
  // Errors: InvalidArgument: not what Encode wrote.
  static absl::StatusOr<ScanCursor> Decode(absl::string_view text);
};

// The rows of one embedding table on one ps. Decides where rows live, when they
// come and go, and how gradients change them. The consistency controller
// decides whose gradients count, and when. Pure but for the cold store: no
// clock, no thread.
//
// Slots are grouped into partitions, contiguous and each of one lane. A call
// touches slots of one lane, calls for different lanes may run at the same
// time, calls for one lane may not. Which partitions there are depends on the
// options and not on the number of lanes, nor do results.
//
// A row's value is a function of its pushes alone: spilling and reading back
// loses nothing, a row that expired is as if it had never been, and whether one
// has expired depends on the clocks that calls name, not on when Maintain ran.
// (By unseen_time it depends on the time that Maintain was told; and with less
// memory than the rows take, admission is stricter.)
class TableShard {
 public:
  // Errors: InvalidArgument, saying which value and its range: dim, an
  // optimizer that is not one for rows, admission, expiry, memory_bytes below
  // the filter and a row.
  static absl::Status CheckOptions(const TableOptions& options);
  // Bytes that a row takes in memory, with its share of index and marks.
  static uint64_t MemoryRowBytes(const TableOptions& options);
  // Bytes of a row that the cold store keeps.
  static size_t SpilledRowBytes(const TableOptions& options);

  // `cold`: null: rows that find no room in memory are refused.
  // REQUIRES: CheckOptions; lanes >= 1.
  TableShard(const TableOptions& options, const TableMap& map, uint32_t shard,
             int lanes, std::unique_ptr<ColdStore> cold);
  TableShard(const TableShard&) = delete;
  TableShard& operator=(const TableShard&) = delete;

  // Which lane has a slot of this shard. Ascends with the slot, so a message's
  // rows fall into one piece per lane.
  int LaneOf(uint32_t slot) const {
    return LaneOfPartition(partition_of_.OfSlot(slot));
  }
  int lanes() const { return static_cast<int>(lanes_.size()); }

  // One optimizer step for every key in `ranks`: gradients of the same key are
  // summed in the order of `ranks`. Keys without a row get one first, if they
  // are admitted. Rows whose sum is not finite stay as they are, absent ones
  // absent; step.non_finite gets their keys.
  // Errors: ResourceExhausted: some rows found no room, neither in memory nor
  // on disk; they are as they were (new ones: absent), and counted in
  // refused_by_budget. DataLoss, Unavailable: the cold store failed; rows that
  // needed it are as they were. All other rows are updated in every case. Of
  // several errors the first is returned.
  absl::Status Push(int lane, absl::Span<const GradientRows> ranks,
                    const RowStep& step) {
    return lanes_[lane]->Push(ranks, step);
  }

  // Writes squared norms of what Push would apply of these rows, for each slot
  // that they are of, in fp64 in (key, element) order: into `by_slot`, which
  // has all slots of this shard. Leaves out, and names, the same rows as Push;
  // those that will not be admitted it cannot know.
  void SquaredNorms(int lane, absl::Span<const GradientRows> ranks,
                    const RowStep& step, absl::Span<double> by_slot) {
    lanes_[lane]->SquaredNorms(ranks, step, by_slot);
  }

  // Writes keys.size() x dim floats. Keys ascend by (slot, key). Absent keys
  // give their initial values; none is created.
  // Errors: DataLoss, Unavailable: from the cold store; `out` is then
  // unspecified for the rows that it has.
  absl::Status Read(int lane, absl::Span<const int64_t> keys, int64_t clock,
                    float* out) {
    return lanes_[lane]->Read(keys, clock, out);
  }

  // Removes expired rows of a lane, looking at a bounded number of rows a call,
  // and tries again to make room if there was none. Call it about once a second
  // from every lane. `clock`: no later call names a smaller one (or it may find
  // gone what had not expired at its own).
  // Errors: from the cold store; what was to be removed is then still there.
  absl::Status Maintain(int lane, int64_t clock, absl::Time now) {
    return lanes_[lane]->Maintain(clock, now);
  }

  // Appends rows from `cursor` on, at most `limit`, spilled ones included, and
  // moves the cursor. Rows come by (partition, position): those that are there
  // throughout come exactly once, whatever happens between calls. Called in the
  // lane that ScanLane names; fewer rows than `limit`, even none, do not mean
  // the end: ScanDone does. Neither refreshes rows nor moves them.
  // Errors: DataLoss, Unavailable: from the cold store.
  absl::Status Scan(int64_t clock, size_t limit, ScanCursor* cursor,
                    std::vector<int64_t>* keys, std::vector<float>* values);
  // REQUIRES: !ScanDone.
  int ScanLane(const ScanCursor& cursor) const {
    return LaneOfPartition(cursor.partition);
  }
  bool ScanDone(const ScanCursor& cursor) const {
    return cursor.partition >= partition_of_.partitions();
  }

  // --- State, while nothing is pushed ---
  // Everything that later results depend on: the rows and the admission filter
  // of each partition, in its lane, and each lane's counts. Imported into a
  // table without rows, of other lanes and partitions too, before any call.

  uint32_t partitions() const { return partition_of_.partitions(); }
  int LaneOfPartition(uint32_t partition) const {
    return static_cast<int>(uint64_t{partition} * lanes_.size() /
                            partition_of_.partitions());
  }
  // Ascending; every slot of this shard is one partition's.
  std::vector<uint32_t> SlotsOf(uint32_t partition) const {
    return partition_of_.SlotsOf(partition);
  }
  size_t row_bytes() const { return context_.layout.bytes(); }
  // Errors: as TablePartition::ExportRows.
  absl::Status ExportRows(uint32_t partition, const std::vector<bool>& wanted,
                          size_t limit, RowCursor* cursor, RowBatch* out) {
    return Partition(partition).ExportRows(partition_of_.slot_of(), wanted,
                                           limit, cursor, out);
  }
  // As TablePartition's, in the partition's lane.
  ChangedKeys::Changes CloseChanges(uint32_t partition, uint64_t base_cut,
                                    uint64_t cut) {
    return Partition(partition).CloseChanges(base_cut, cut);
  }
  absl::Status ExportKeys(uint32_t partition, absl::Span<const int64_t> keys,
                          RowBatch* out, std::vector<int64_t>* gone) {
    return Partition(partition).ExportKeys(keys, out, gone);
  }
  const AdmissionFilter& filter(uint32_t partition) {
    return Partition(partition).filter();
  }
  TableLaneState ExportLane(int lane, absl::Time now) const {
    return lanes_[lane]->Export(now);
  }
  // REQUIRES: the rows are of slots of this shard, and not there yet.
  // Errors: as TablePartition::ImportRow.
  absl::Status ImportRows(size_t count, const char* rows, const char* places);
  // Part of a filter of `total` counters that has counted the keys of these
  // slots. False: a filter here has another size, and its counts start anew.
  bool ImportFilter(absl::Span<const uint32_t> slots, uint64_t total,
                    uint64_t sightings, size_t first,
                    absl::Span<const uint8_t> counters);
  void ImportLane(const TableLaneState& state, absl::Time now);

  // OK if pushes should be accepted at all; thread-safe, two relaxed loads.
  // Errors: ResourceExhausted: memory is full, and disk but for a reserve, or
  // the disk failed when it was last asked to make room; the message says how
  // full each is. Callers refuse a push with this error before they accept it:
  // an accepted push may still find room in the reserve. Maintain clears the
  // error when there is room again.
  absl::Status AcceptsPushes() const { return context_.room.Check(); }

  // Of one lane, called in that lane; sums over lanes with TableStats::Add.
  TableStats Stats(int lane) const { return lanes_[lane]->Stats(); }

 private:
  struct Plan;
  static Plan PlanOf(const TableOptions& options, uint32_t slots);
  TableShard(const TableOptions& options, const TableMap& map, uint32_t shard,
             int lanes, std::unique_ptr<ColdStore> cold, const Plan& plan);

  TablePartition& Partition(uint32_t id) {
    return lanes_[LaneOfPartition(id)]->partition(id);
  }

  TableContext context_;
  const PartitionMap partition_of_;
  std::vector<std::unique_ptr<TableLane>> lanes_;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_TABLES_TABLE_SHARD_H_
