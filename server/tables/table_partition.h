#ifndef SYNCLINE_SERVER_TABLES_TABLE_PARTITION_H_
#define SYNCLINE_SERVER_TABLES_TABLE_PARTITION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/state/row_layout.h"
#include "common/update/row_expiry.h"
#include "kernels/optimizer/row_optimizer.h"
#include "server/memory/slab_pool.h"
#include "server/tables/admission_filter.h"
#include "server/tables/changed_keys.h"
#include "server/tables/cold_store.h"
#include "server/tables/row_partition.h"
#include "server/tables/table_options.h"
#include "server/tables/table_state.h"

namespace syncline::ps {

// State of a table's room, as its partitions find it. Thread-safe.
class TableRoom {
 public:
  // OK, or the last reason why rows found none.
  absl::Status Check() const ABSL_LOCKS_EXCLUDED(mu_);

  // In pairs: a partition found no room for a row, and has some again.
  void Starved(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  void Relieved() { starved_.fetch_sub(1, std::memory_order_relaxed); }
  // Only a reserve is left on disk, for what is on its way; OK: more than that.
  void SetDisk(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  std::atomic<int> starved_{0};
  std::atomic<bool> disk_low_{false};
  mutable Mutex mu_;
  absl::Status why_ ABSL_GUARDED_BY(mu_);
};

// State that the partitions of a table share.
struct TableContext {
  TableContext(const TableOptions& table_options, size_t slab_bytes,
               bool huge_pages, std::unique_ptr<ColdStore> cold_store);

  const TableOptions options;
  const RowOptimizer optimizer;
  const RowLayout layout;
  const RowExpiry expiry;
  // Internally synchronised.
  const std::unique_ptr<ColdStore> cold;  // may be null
  SlabPool pool;
  TableRoom room;
};

// Memory that the partitions of a lane use one at a time: it is too large for
// each to keep its own.
struct PartitionScratch {
  std::vector<std::pair<float, uint32_t>> candidates;  // worth, row
  std::vector<uint32_t> victims;
  std::vector<ColdKey> cold_keys;
  std::vector<int64_t> keys;
  std::vector<char> cold_bytes;
};

// The number of rows and bytes that one upkeep of a lane may still look at.
struct UpkeepBudget {
  size_t rows = 0;
  size_t disk_bytes = 0;  // of rows that are read

  bool left() const { return rows > 0 && disk_bytes > 0; }
};

// The virtual slot of a hash.
struct SlotOf {
  int shift = 0;
  uint32_t operator()(uint64_t hash) const {
    return static_cast<uint32_t>(hash >> shift);
  }
};

// The rows of one partition, in memory and on disk: admission, spilling and
// expiry. The rules, in the order in which they make room:
//   1. admission is stricter: twice the sightings, half the probability (where
//      the table has such a rule), once eight ninths of the rows are there
//   2. expired rows go
//   3. cold rows are written to disk: of those that the hand passes next, and
//      that were not read since it passed the last time, the ones that are
//      pushed most seldom
//   4. the push is refused
// A row that was read back keeps its copy on disk: spilled again unchanged, it
// need not be written. The row in memory is valid; its copy may be older.
// Thread-compatible.
class TablePartition {
 public:
  static constexpr uint32_t kNone = RowPartition::kNone;

  // `context` outlives it; `counts` and `scratch` are those of the lane that
  // has it.
  TablePartition(TableContext* context, TableStats* counts,
                 PartitionScratch* scratch, uint32_t id, uint32_t rows_per_slab,
                 uint32_t rows_max, size_t filter_bytes);
  ~TablePartition();
  TablePartition(const TablePartition&) = delete;
  TablePartition& operator=(const TablePartition&) = delete;

  uint32_t id() const { return id_; }
  RowPartition& rows() { return rows_; }
  const RowPartition& rows() const { return rows_; }
  bool has_cold_rows() const { return cold_rows_ > 0; }

  // --- Rows in memory ---

  bool Expired(const char* row, uint32_t clock) const {
    return context_->expiry.enabled() &&
           Judge(row, clock) != RowExpiry::Verdict::kLives;
  }
  // Removes an expired row of memory, and its copy on disk.
  absl::Status Expire(uint32_t row, uint32_t clock);
  // A row was read, or it no longer is what its copy on disk says. A push that
  // follows a pull is no second use: it shows in the row's score alone.
  void SetRead(uint32_t row) {
    if (watches_use_) rows_.mark(row) |= kRead;
  }
  void SetChanged(uint32_t row) {
    if (watches_use_) rows_.mark(row) |= kChanged;
    changes_.Note(RowLayout::Key(rows_.At(row)));
  }

  // --- Keys without a row in memory ---
  // `spilled`: what the cold store has of the key, or null.

  // The row for a push of `key`; kNone if it gets none.
  // Errors: as TableShard::Push; *row is then kNone.
  absl::Status Enter(int64_t key, uint64_t hash, uint32_t clock,
                     const char* spilled, uint32_t* row);
  // True if the spilled row of `key` has not expired at `clock`.
  bool LivesOnDisk(const char* spilled, uint32_t clock) const;
  // Takes a row that lives on disk into memory, if there is room: it was read.
  void Promote(int64_t key, uint64_t hash, uint32_t clock, const char* spilled);

  // --- Upkeep ---

  // Rows last pushed before this clock are too old.
  void SetTooOld(uint32_t clock) { too_old_ = clock; }
  // If there was no room for a row, tries to make some: TableRoom says whether
  // there is.
  void Recover(uint32_t clock) {
    if (starved_) MakeRoom(clock).IgnoreError();
  }
  // Removes expired rows, in memory and on disk, from where it stopped, as far
  // as *budget goes; takes what it looked at from it. *round: it has been
  // round.
  absl::Status Maintain(uint32_t clock, UpkeepBudget* budget, bool* round);

  // Appends up to `limit` rows with positions from *from on, in their order.
  // Sets *more: there may be more, from the new *from on.
  absl::Status Scan(uint32_t clock, size_t limit, uint64_t* from, bool* more,
                    std::vector<int64_t>* keys, std::vector<float>* values);

  // --- State, while nothing is pushed (table_partition_state.cc) ---

  // Appends up to `limit` rows of `wanted` slots (empty: all), in order of
  // position, expired ones that were not removed yet too. Rows on disk are read
  // and stay there; what else was read meanwhile does not matter.
  // Errors: DataLoss, Unavailable: from the cold store.
  absl::Status ExportRows(const SlotOf& slot_of,
                          const std::vector<bool>& wanted, size_t limit,
                          RowCursor* cursor, RowBatch* out);
  // Rows changed since the last committed checkpoint: ChangedKeys::Close. The
  // first call begins to keep it. A row that was moved between memory and disk
  // has changed; one that was read has not.
  ChangedKeys::Changes CloseChanges(uint64_t base_cut, uint64_t cut);
  // Appends those of `keys` that have a row to *out, the others to *gone; else
  // as ExportRows.
  absl::Status ExportKeys(absl::Span<const int64_t> keys, RowBatch* out,
                          std::vector<int64_t>* gone);
  // Takes a row that the partition does not have. One for the disk is written
  // by FlushImported, at the latest.
  // Errors: ResourceExhausted: no room; those of the cold store.
  absl::Status ImportRow(const char* row, uint8_t place);
  absl::Status FlushImported();
  AdmissionFilter& filter() { return filter_; }
  const AdmissionFilter& filter() const { return filter_; }

  // Adds sizes; counts are the lane's.
  void AddSizes(TableStats* stats) const;

 private:
  // Marks of RowPartition.
  static constexpr uint8_t kThere = 0x01;
  static constexpr uint8_t kRead = 0x02;     // since the hand passed
  static constexpr uint8_t kChanged = 0x40;  // since it was written to disk
  static constexpr uint8_t kOnDisk = 0x80;   // so is a copy, perhaps older

  // How often the row is pushed, compared with others at the same clock.
  float Worth(const char* row, uint32_t clock) const;
  RowExpiry::Verdict Judge(const char* row, uint32_t clock) const {
    return context_->expiry.Judge(RowLayout::Score(row), RowLayout::Clock(row),
                                  clock, too_old_);
  }
  void CountExpired(RowExpiry::Verdict verdict);
  bool Admitted(int64_t key, uint64_t hash, uint32_t clock);
  uint32_t AddRow(int64_t key, uint64_t hash, const char* spilled,
                  bool stale_copy);

  void ListResident(const SlotOf& slot_of, const std::vector<bool>& wanted,
                    RowCursor* cursor) const;
  // Appends the row of `key`: from memory, else `spilled`, else none and false.
  bool AppendRow(int64_t key, const char* spilled, RowBatch* out) const;

  absl::Status MakeRoom(uint32_t clock);
  absl::Status RemoveExpired(uint32_t clock, uint32_t begin, uint32_t end);
  absl::Status RemoveExpiredOnDisk(uint32_t clock, UpkeepBudget* budget);
  absl::Status Spill(uint32_t clock);
  void ChooseVictims(size_t count, uint32_t clock);
  absl::Status WriteVictims();
  void WatchDisk();
  absl::Status Starve(const absl::Status& why);
  void Relieve();

  TableContext* const context_;
  TableStats* const counts_;
  PartitionScratch* const scratch_;
  const uint32_t id_;
  RowPartition rows_;
  AdmissionFilter filter_;
  ChangedKeys changes_;
  uint64_t cold_rows_ = 0;  // keys on disk that are not in memory
  uint32_t too_old_ = 0;
  int64_t next_sweep_clock_ = 0;  // of MakeRoom
  // Once rows may have to be written to disk: until then their marks need not
  // be touched, each of which is a cache line of its own.
  bool watches_use_ = false;
  bool starved_ = false;
  uint32_t hand_ = 0;   // of ChooseVictims
  uint32_t sweep_ = 0;  // where Maintain continues: a row, then a key on disk
  bool sweeps_disk_ = false;
  uint64_t sweep_position_ = 0;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_TABLES_TABLE_PARTITION_H_
