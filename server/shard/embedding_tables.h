#ifndef SYNCLINE_SERVER_SHARD_EMBEDDING_TABLES_H_
#define SYNCLINE_SERVER_SHARD_EMBEDDING_TABLES_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "proto/parameter_server.pb.h"
#include "server/shard/call_rows.h"
#include "server/shard/job_config.h"
#include "server/shard/non_finite_log.h"
#include "server/tables/table_budget.h"
#include "server/tables/table_shard.h"

namespace syncline::ps {

// The embedding tables of one job on this ps: what JobShard's lanes do with
// them, and what is known of them outside the lanes. Calls that name a lane run
// in that lane; the others are thread-safe.
class EmbeddingTables {
 public:
  // A null cold store keeps a table in memory alone.
  using ColdStores = std::vector<std::unique_ptr<ColdStore>>;  // by table

  // `reserved`: what the tables take; given back when they are gone.
  // Errors: InvalidArgument: TableShard::CheckOptions.
  static absl::StatusOr<std::unique_ptr<EmbeddingTables>> Create(
      const JobConfig& config, int lanes, ColdStores cold,
      TableBudget::Reservation reserved);

  bool empty() const { return tables_.empty(); }
  // True if Push and Read may wait for a disk.
  bool spills() const { return spills_; }
  int LaneOf(uint32_t table, uint32_t slot) const {
    return tables_[table].shard->LaneOf(slot);
  }
  uint32_t dim(uint32_t table) const { return tables_[table].dim; }
  // For its state at a cut.
  TableShard& shard(uint32_t table) { return *tables_[table].shard; }

  // OK if rows may be pushed to these tables now. Errors, with the table's
  // name: ResourceExhausted: memory and disk are full, which may pass;
  // DataLoss, Unavailable: the disk failed under rows that had been accepted,
  // which is permanent.
  absl::Status AcceptsPushes(absl::Span<const RowList> lists) const;

  // One update of every key in `ranks`, which are lists of one table. What
  // fails here was accepted already: it is remembered for AcceptsPushes, and
  // logged.
  // Rows that are not finite are named in `non_finite`; null: they have been.
  void Push(int lane, absl::Span<const CallRowSpan> ranks, RowStep step,
            NonFiniteLog* non_finite);
  // TableShard::SquaredNorms. Rows that are not finite are named in
  // `non_finite`; whether there is none.
  bool SquaredNorms(int lane, absl::Span<const CallRowSpan> ranks, RowStep step,
                    absl::Span<double> by_slot, NonFiniteLog* non_finite);
  // Writes the rows' values to `out` as `type`.
  absl::Status Read(int lane, const CallRowSpan& rows, int64_t clock,
                    ElementType type, void* out);

  // Rows from `cursor` on (empty: the beginning), as many as fit into a
  // message, and where to go on (empty: that was all). Any lane but
  // ScanLane's is the wrong one.
  struct Scanned {
    std::vector<int64_t> keys;
    std::vector<float> values;
    std::string next_cursor;
  };
  // Errors of Scan: DataLoss, Unavailable: the disk failed, now or under rows
  // that had been accepted: what is left must not pass for the table.
  absl::StatusOr<int> ScanLane(uint32_t table, const std::string& cursor) const;
  absl::StatusOr<Scanned> Scan(uint32_t table, const std::string& cursor,
                               int64_t clock);

  // Once a second: what time does to rows, and a new sample for Status.
  void Maintain(int lane, int64_t clock, absl::Time now);

  // Why rows that had been accepted lack an update: the disk failed. OK where
  // they were refused for want of room, which is counted.
  absl::Status Failure() const ABSL_LOCKS_EXCLUDED(mu_);

  // For Status.
  void Sample(int lane) ABSL_LOCKS_EXCLUDED(mu_);
  // Sample of all lanes, whose counts another process has told of. REQUIRES:
  // the lanes have nothing of these tables.
  void SampleImported() ABSL_LOCKS_EXCLUDED(mu_);
  // As of the last Maintain or Sample of each lane.
  std::vector<ShardStatus::Table> Status() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Table {
    std::string name;
    uint32_t dim = 0;
    uint64_t memory_limit_bytes = 0;
    TableMap map;  // the order of keys
    std::unique_ptr<TableShard> shard;
  };
  EmbeddingTables(std::string label, std::vector<Table> tables, bool spills,
                  int lanes, TableBudget::Reservation reserved);
  absl::Status Named(const Table& table, const absl::Status& status) const;
  static std::vector<GradientRows> GradientsOf(
      const Table& table, absl::Span<const CallRowSpan> ranks);
  // Records the workers whose rows of these keys are not finite.
  static void TellNonFinite(const Table& table,
                            absl::Span<const CallRowSpan> ranks, int64_t clock,
                            absl::Span<const int64_t> bad_keys,
                            NonFiniteLog* log);
  void Remember(const Table& table, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Warn(const char* what, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mu_);

  const std::string label_;  // "job j-0001 on ps:0 at 10.0.0.5:4000"
  const TableBudget::Reservation reserved_;  // outlives the tables
  const std::vector<Table> tables_;
  const bool spills_;
  std::vector<std::vector<float>> pieces_;  // by lane, its own scratch

  std::atomic<bool> failed_{false};
  mutable Mutex mu_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  absl::Time next_warning_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  // By table, then by lane.
  std::vector<std::vector<TableStats>> samples_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SHARD_EMBEDDING_TABLES_H_
