#include "server/shard/embedding_tables.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/element_type.h"
#include "common/base/status_macros.h"
#include "common/system/log.h"
#include "common/wire/frame.h"
#include "kernels/optimizer/finite.h"

namespace syncline::ps {
namespace {

// A full table refuses rows in every push. The log has a warning at most once
// in this period.
constexpr absl::Duration kWarningPeriod = absl::Seconds(10);
// Rows that are read before they are narrowed: 64 KiB, in the second-level
// cache, or one row.
constexpr size_t kPieceFloats = 16 << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<EmbeddingTables>> EmbeddingTables::Create(
    const JobConfig& config, int lanes, ColdStores cold,
    TableBudget::Reservation reserved) {
  const bool spills =
      std::any_of(cold.begin(), cold.end(),
                  [](const auto& store) { return store != nullptr; });
  std::vector<Table> tables;
  for (size_t i = 0; i < config.tables.size(); ++i) {
    const TableOptions& options = config.tables[i].options;
    SYNCLINE_RETURN_IF_ERROR(
        Annotate(TableShard::CheckOptions(options),
                 absl::StrCat(config.label, ": table '", options.name, "'")));
    tables.push_back({options.name, options.dim, options.memory_bytes,
                      config.tables[i].layout.map,
                      std::make_unique<TableShard>(
                          options, config.tables[i].layout.map, config.shard,
                          lanes, std::move(cold[i]))});
  }
  return std::unique_ptr<EmbeddingTables>(new EmbeddingTables(
      config.label, std::move(tables), spills, lanes, std::move(reserved)));
}

EmbeddingTables::EmbeddingTables(std::string label, std::vector<Table> tables,
                                 bool spills, int lanes,
                                 TableBudget::Reservation reserved)
    : label_(std::move(label)),
      reserved_(std::move(reserved)),
      tables_(std::move(tables)),
      spills_(spills),
      pieces_(lanes),
      samples_(tables_.size(), std::vector<TableStats>(lanes)) {}

absl::Status EmbeddingTables::AcceptsPushes(
    absl::Span<const RowList> lists) const {
  SYNCLINE_RETURN_IF_ERROR(Failure());
  for (const RowList& list : lists) {
    const Table& table = tables_[list.table];
    if (absl::Status room = table.shard->AcceptsPushes(); !room.ok()) {
      return Named(table, room);
    }
  }
  return absl::OkStatus();
}

void EmbeddingTables::Push(int lane, absl::Span<const CallRowSpan> ranks,
                           RowStep step, NonFiniteLog* non_finite) {
  const Table& table = tables_[ranks[0].list->table];
  std::vector<int64_t> bad_keys;
  step.non_finite = &bad_keys;
  if (absl::Status pushed =
          table.shard->Push(lane, GradientsOf(table, ranks), step);
      !pushed.ok()) {
    Remember(table, pushed);
  }
  if (non_finite == nullptr) return;
  TellNonFinite(table, ranks, step.clock, bad_keys, non_finite);
}

bool EmbeddingTables::SquaredNorms(int lane,
                                   absl::Span<const CallRowSpan> ranks,
                                   RowStep step, absl::Span<double> by_slot,
                                   NonFiniteLog* non_finite) {
  const Table& table = tables_[ranks[0].list->table];
  std::vector<int64_t> bad_keys;
  step.non_finite = &bad_keys;
  table.shard->SquaredNorms(lane, GradientsOf(table, ranks), step, by_slot);
  TellNonFinite(table, ranks, step.clock, bad_keys, non_finite);
  return bad_keys.empty();
}

std::vector<GradientRows> EmbeddingTables::GradientsOf(
    const Table& table, absl::Span<const CallRowSpan> ranks) {
  std::vector<GradientRows> rows;
  rows.reserve(ranks.size());
  for (const CallRowSpan& range : ranks) {
    rows.push_back({range.keys(), range.call->values.get(),
                    range.first_element(table.dim)});
  }
  return rows;
}

void EmbeddingTables::TellNonFinite(const Table& table,
                                    absl::Span<const CallRowSpan> ranks,
                                    int64_t clock,
                                    absl::Span<const int64_t> bad_keys,
                                    NonFiniteLog* log) {
  const auto before = [&](int64_t a, int64_t b) {
    return table.map.Before(a, b);
  };
  std::vector<float> row(table.dim);
  for (const int64_t key : bad_keys) {
    const std::string what =
        absl::StrCat("key ", key, " of table '", table.name, "'");
    bool found = false;
    for (const CallRowSpan& range : ranks) {
      const absl::Span<const int64_t> keys = range.keys();
      const auto at = std::lower_bound(keys.begin(), keys.end(), key, before);
      if (at == keys.end() || *at != key) continue;
      range.call->values->CopyTo(
          range.first_element(table.dim) + (at - keys.begin()) * table.dim,
          table.dim, row.data());
      if (AllFinite(row.data(), row.size())) continue;
      log->Found(range.rank, clock, what);
      found = true;
    }
    if (!found) log->Found(NonFiniteLog::kSum, clock, what);
  }
}

absl::Status EmbeddingTables::Read(int lane, const CallRowSpan& rows,
                                   int64_t clock, ElementType type, void* out) {
  const Table& table = tables_[rows.list->table];
  const absl::Span<const int64_t> keys = rows.keys();
  if (type == ElementType::kFloat32) {
    return Named(
        table, table.shard->Read(lane, keys, clock, static_cast<float*>(out)));
  }
  const size_t piece_rows = std::max<size_t>(1, kPieceFloats / table.dim);
  std::vector<float>& piece = pieces_[lane];
  piece.resize(std::min(piece_rows, keys.size()) * table.dim);
  for (size_t first = 0; first < keys.size(); first += piece_rows) {
    const absl::Span<const int64_t> some = keys.subspan(first, piece_rows);
    SYNCLINE_RETURN_IF_ERROR(
        Named(table, table.shard->Read(lane, some, clock, piece.data())));
    Narrow(type, piece.data(),
           static_cast<char*>(out) + first * table.dim * ElementBytes(type),
           some.size() * table.dim);
  }
  return absl::OkStatus();
}

absl::Status EmbeddingTables::Named(const Table& table,
                                    const absl::Status& status) const {
  return Annotate(status, absl::StrCat(label_, ": table '", table.name, "'"));
}

void EmbeddingTables::Remember(const Table& table, const absl::Status& status) {
  if (status.code() != absl::StatusCode::kResourceExhausted) {
    MutexLock lock(&mu_);
    if (failure_.ok()) {
      failure_ = Named(table, status);
      failed_ = true;
      next_warning_ = absl::InfinitePast();
    }
  }
  Warn("rows that were pushed have no effect", Named(table, status));
}

void EmbeddingTables::Warn(const char* what, const absl::Status& status) {
  MutexLock lock(&mu_);
  if (MonotonicNow() < next_warning_) return;
  next_warning_ = MonotonicNow() + kWarningPeriod;
  LogWarning(what).Status(status);
}

absl::Status EmbeddingTables::Failure() const {
  if (!failed_.load(std::memory_order_relaxed)) return absl::OkStatus();
  MutexLock lock(&mu_);
  return failure_;
}

absl::StatusOr<int> EmbeddingTables::ScanLane(uint32_t table,
                                              const std::string& cursor) const {
  if (table >= tables_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(label_, ": table ", table, " does not exist, there are ",
                     tables_.size(), " tables"));
  }
  ScanCursor at;
  if (!cursor.empty()) {
    SYNCLINE_ASSIGN_OR_RETURN(at, ScanCursor::Decode(cursor));
  }
  if (tables_[table].shard->ScanDone(at)) {
    return absl::InvalidArgumentError(
        absl::StrCat(label_, ": table '", tables_[table].name,
                     "': cursor is behind the end"));
  }
  return tables_[table].shard->ScanLane(at);
}

absl::StatusOr<EmbeddingTables::Scanned> EmbeddingTables::Scan(
    uint32_t table, const std::string& cursor, int64_t clock) {
  SYNCLINE_RETURN_IF_ERROR(Failure());
  TableShard* const shard = tables_[table].shard.get();
  ScanCursor at;
  if (!cursor.empty()) {
    SYNCLINE_ASSIGN_OR_RETURN(at, ScanCursor::Decode(cursor));
  }
  const size_t row_bytes = sizeof(int64_t) + tables_[table].dim * sizeof(float);
  Scanned scanned;
  SYNCLINE_RETURN_IF_ERROR(
      Named(tables_[table], shard->Scan(clock, kChunkBytesMax / row_bytes, &at,
                                        &scanned.keys, &scanned.values)));
  if (!shard->ScanDone(at)) scanned.next_cursor = at.Encode();
  return scanned;
}

void EmbeddingTables::Maintain(int lane, int64_t clock, absl::Time now) {
  for (size_t i = 0; i < tables_.size(); ++i) {
    const Table& table = tables_[i];
    if (absl::Status done = table.shard->Maintain(lane, clock, now);
        !done.ok()) {
      // Nothing is lost by it: it is tried again in a second.
      Warn("expired rows stay", Named(table, done));
    }
  }
  Sample(lane);
}

void EmbeddingTables::Sample(int lane) {
  for (size_t i = 0; i < tables_.size(); ++i) {
    TableStats sample = tables_[i].shard->Stats(lane);
    MutexLock lock(&mu_);
    if (sample.unreadable_rows > samples_[i][lane].unreadable_rows) {
      LogWarning("rows do not read back from disk as they were written")
          .Field("table", tables_[i].name)
          .Field("lane", lane)
          .Field("times", sample.unreadable_rows);
    }
    samples_[i][lane] = std::move(sample);
  }
}

void EmbeddingTables::SampleImported() {
  MutexLock lock(&mu_);
  for (size_t i = 0; i < tables_.size(); ++i) {
    for (size_t lane = 0; lane < samples_[i].size(); ++lane) {
      samples_[i][lane] = tables_[i].shard->Stats(static_cast<int>(lane));
    }
  }
}

std::vector<ShardStatus::Table> EmbeddingTables::Status() const {
  std::vector<ShardStatus::Table> all;
  MutexLock lock(&mu_);
  for (size_t i = 0; i < tables_.size(); ++i) {
    TableStats sum = samples_[i][0];
    for (size_t lane = 1; lane < samples_[i].size(); ++lane) {
      sum.Add(samples_[i][lane]);
    }
    ShardStatus::Table& status = all.emplace_back();
    status.set_name(tables_[i].name);
    status.set_rows_in_memory(sum.rows_in_memory);
    status.set_rows_on_disk(sum.rows_on_disk);
    status.set_memory_bytes(sum.memory_bytes);
    status.set_memory_limit_bytes(tables_[i].memory_limit_bytes);
    status.set_disk_bytes(sum.disk_bytes);
    status.set_disk_limit_bytes(sum.disk_limit_bytes);
    status.set_pulled_from_memory(sum.read_from_memory);
    status.set_pulled_from_disk(sum.read_from_disk);
    status.set_pulled_absent(sum.read_absent);
    status.set_pushed_rows(sum.pushed_rows);
    status.set_refused_by_sightings(sum.refused_by_sightings);
    status.set_refused_by_probability(sum.refused_by_probability);
    status.set_refused_by_budget(sum.refused_by_budget);
    status.set_expired_by_age(sum.expired_by_age);
    status.set_expired_by_score(sum.expired_by_score);
    status.set_spilled_rows(sum.spilled_rows);
    for (const auto& hot : sum.hot_keys) {
      ShardStatus::Table::HotKey* key = status.add_hot_keys();
      key->set_key(hot.key);
      key->set_pushes(hot.pushes);
      key->set_refused(hot.refused);
      key->set_refused_error(hot.refused_error);
    }
  }
  return all;
}

}  // namespace syncline::ps
