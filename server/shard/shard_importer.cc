#include "server/shard/shard_importer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/system/log.h"
#include "common/update/optimizer_state.h"
#include "common/wire/wire_cut_use.h"

namespace syncline::ps {
namespace {

using Kind = ShardStateKind;

// Of any optimizer, and floats of a row's for each of its values.
constexpr uint32_t kSlotsMax = 16;
constexpr int kHotKeysMax = 256;
constexpr int kClockAgesMax = 256;
constexpr size_t kCounterBytes = 3 * sizeof(uint64_t);
// Of those that are missing, for messages.
constexpr size_t kNamedMax = 8;

uint64_t Load64(const char* from) {
  uint64_t value = 0;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

TableStats CountsOf(const TableCounts& meta) {
  TableStats counts;
  counts.read_from_memory = meta.read_from_memory();
  counts.read_from_disk = meta.read_from_disk();
  counts.read_absent = meta.read_absent();
  counts.unreadable_rows = meta.unreadable_rows();
  counts.pushed_rows = meta.pushed_rows();
  counts.refused_by_sightings = meta.refused_by_sightings();
  counts.refused_by_probability = meta.refused_by_probability();
  counts.refused_by_budget = meta.refused_by_budget();
  counts.expired_by_age = meta.expired_by_age();
  counts.expired_by_score = meta.expired_by_score();
  counts.spilled_rows = meta.spilled_rows();
  counts.loaded_rows = meta.loaded_rows();
  return counts;
}

// A name in a state, for messages.
std::string Shown(absl::string_view name) {
  constexpr size_t kShownMax = 100;
  return absl::StrCat("'", Printable(name.substr(0, kShownMax)), "'");
}

template <typename T>
std::string Listed(const std::vector<T>& all) {
  const size_t named = std::min(all.size(), kNamedMax);
  return absl::StrCat(absl::StrJoin(all.begin(), all.begin() + named, ", "),
                      named < all.size()
                          ? absl::StrCat(" and ", all.size() - named, " more")
                          : "");
}

}  // namespace

ShardImporter::ShardImporter(const JobConfig* config, const ShardLayout* layout,
                             LaneExecutor* executor,
                             const ShardImportOptions& options)
    : config_(config),
      layout_(layout),
      executor_(executor),
      options_(options),
      blocks_come_(layout->counts().size()),
      non_finite_(config->controller.workers.size()) {
  for (BlockIndex i = 0; i < layout->ids().size(); ++i) {
    index_of_[layout->ids()[i]] = i;
  }
  if (options_.values_only) options_.begins_attempt = true;
  for (const TableLayout& table : layout->tables()) {
    slots_come_.emplace_back(table.map.slots());
  }
  if (!options_.values_only) return;
  for (const auto& table : config->tables) {
    expiries_.emplace_back(table.options.expiry);
  }
}

bool ShardImporter::IsMine(uint32_t table, uint32_t slot) const {
  return layout_->tables()[table].map.ShardOfSlot(slot) == layout_->shard();
}

absl::Status ShardImporter::Refuse(absl::string_view problem) const {
  return absl::InvalidArgumentError(absl::StrCat(
      source_, ": the state does not fit ", config_->label, ": ", problem));
}

// --- One state ---------------------------------------------------------------

absl::Status ShardImporter::Read(ShardStateSource* source, absl::Time now) {
  source_ = source->name();
  sources_.push_back(source_);
  is_older_ = false;
  ShardStateReader reader(source);
  SYNCLINE_ASSIGN_OR_RETURN(const ShardStateReader::Record record,
                            reader.Next());
  SYNCLINE_RETURN_IF_ERROR(ReadHeader(reader, record));
  std::vector<uint32_t> slots;
  for (const FormerTable& table : former_) slots.push_back(table.map.slots());
  chain_.Begin(slots);
  SYNCLINE_RETURN_IF_ERROR(ReadRecords(&reader, now));
  return ReadOlder(*source, now);
}

absl::Status ShardImporter::ReadRecords(ShardStateReader* reader,
                                        absl::Time now) {
  block_.reset();
  part_.reset();
  rows_read_ = 0;
  gone_read_ = 0;
  ShardStateKind kind = Kind::kHeader;
  while (kind != Kind::kTrailer) {
    SYNCLINE_ASSIGN_OR_RETURN(
        const ShardStateReader::Record record,
        reader->NextOf([this](ShardStateKind of, absl::string_view meta) {
          return Needs(of, meta);
        }));
    SYNCLINE_RETURN_IF_ERROR(ReadRecord(*reader, record, now));
    kind = record.kind;
  }
  return absl::OkStatus();
}

absl::Status ShardImporter::ReadOlder(const ShardStateSource& newest,
                                      absl::Time now) {
  chain_.EndNewest();
  is_older_ = true;
  const ShardStateHeader header = std::move(header_);
  for (int i = header.older_size() - 1; i >= 0; --i) {
    const ShardStateHeader::Older& older = header.older(i);
    SYNCLINE_ASSIGN_OR_RETURN(
        const std::unique_ptr<ShardStateSource> source,
        newest.OpenOlder(older.cut_id(), older.bytes(), older.crc32c()));
    source_ = source->name();
    ShardStateReader reader(source.get());
    SYNCLINE_ASSIGN_OR_RETURN(const ShardStateReader::Record record,
                              reader.Next());
    header_ = header;
    SYNCLINE_RETURN_IF_ERROR(CheckOlderHeader(reader, record, older.cut_id()));
    SYNCLINE_RETURN_IF_ERROR(ReadRecords(&reader, now));
  }
  const std::optional<RowChain::Slot> missing = chain_.Missing();
  if (!missing.has_value()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      newest.name(), ": neither the state nor an older one has all rows of ",
      "slot ", missing->slot, " of table '",
      layout_->tables()[tables_[missing->table]].name, "'"));
}

absl::Status ShardImporter::CheckOlderHeader(
    const ShardStateReader& reader, const ShardStateReader::Record& record,
    uint64_t cut_id) {
  ShardStateHeader older;
  SYNCLINE_RETURN_IF_ERROR(reader.Parse(record, &older));
  bool same = (older.format() == kShardStateFormat ||
               older.format() == kShardStateChainFormat) &&
              older.job_id() == header_.job_id() &&
              older.ps_rank() == header_.ps_rank() &&
              older.cut_id() == cut_id && older.slots() == header_.slots() &&
              older.blocks() == header_.blocks() &&
              older.tables_size() == header_.tables_size();
  for (int i = 0; same && i < older.tables_size(); ++i) {
    same = older.tables(i).SerializeAsString() ==
           header_.tables(i).SerializeAsString();
  }
  if (!same) {
    return reader.Damage("it is not an older state of the same shard");
  }
  blocks_.Begin(1 + older.slots());
  return absl::OkStatus();
}

// Where others' records may not come they are read, and refused as they are.
bool ShardImporter::Needs(ShardStateKind kind, absl::string_view meta) const {
  if (is_older_) {
    return kind == Kind::kRows && part_.has_value() && !part_->mine.empty() &&
           chain_.PartCounts();
  }
  if (!options_.passes_over_others) return true;
  if (kind == Kind::kDense) {
    DensePiece piece;
    return !piece.ParseFromArray(meta.data(), static_cast<int>(meta.size())) ||
           index_of_.contains(piece.block());
  }
  const bool in_part = kind == Kind::kFilter || kind == Kind::kRows;
  return !in_part || !part_.has_value() || !part_->mine.empty();
}

absl::Status ShardImporter::ReadRecord(const ShardStateReader& reader,
                                       const ShardStateReader::Record& record,
                                       absl::Time now) {
  if (record.kind != Kind::kDense) {
    SYNCLINE_RETURN_IF_ERROR(blocks_.CheckClosed(reader));
  }
  const bool in_part =
      record.kind == Kind::kFilter || record.kind == Kind::kRows;
  if (in_part && !part_.has_value()) {
    return reader.Damage("rows or counters come outside of a part of a table");
  }
  if (!in_part) SYNCLINE_RETURN_IF_ERROR(ClosePart(reader));
  switch (record.kind) {
    case Kind::kHeader:
      return reader.Damage("a second header");
    case Kind::kDense:
      return ReadDense(reader, record);
    case Kind::kPart:
      return ReadPart(reader, record);
    case Kind::kFilter:
      return ReadFilter(reader, record);
    case Kind::kRows:
      return ReadRows(reader, record);
    case Kind::kCounts:
      return ReadCounts(reader, record, now);
    case Kind::kTrailer:
      return ReadTrailer(reader, record);
  }
  return reader.Damage("its kind is unknown");
}

absl::Status ShardImporter::ReadHeader(const ShardStateReader& reader,
                                       const ShardStateReader::Record& record) {
  header_.Clear();
  SYNCLINE_RETURN_IF_ERROR(reader.Parse(record, &header_));
  if (header_.format() != kShardStateFormat &&
      header_.format() != kShardStateChainFormat) {
    return Refuse(absl::StrCat("its format is ", header_.format(),
                               ", this version reads ", kShardStateFormat,
                               " and ", kShardStateChainFormat));
  }
  const bool needs_older = header_.format() == kShardStateChainFormat;
  if (needs_older != (header_.older_size() > 0) ||
      header_.older_size() > kOlderStatesMax) {
    return reader.Damage(absl::StrCat("it needs ", header_.older_size(),
                                      " older states, and is of format ",
                                      header_.format()));
  }
  const std::string optimizer = OptimizerStateName(config_->update.optimizer);
  const int slots = executor_->dense().arrays() - 1;
  if (header_.slots() > kSlotsMax) {
    return reader.Damage(
        absl::StrCat("its optimizer has ", header_.slots(), " slots"));
  }
  if (!options_.values_only &&
      (header_.optimizer() != optimizer ||
       header_.slots() != static_cast<uint32_t>(slots))) {
    return Refuse(absl::StrCat("its optimizer is ", Shown(header_.optimizer()),
                               " with ", header_.slots(),
                               " slots, the job's is '", optimizer, "' with ",
                               slots));
  }
  blocks_.Begin(1 + header_.slots());
  SYNCLINE_RETURN_IF_ERROR(TakeTables(header_));
  SYNCLINE_RETURN_IF_ERROR(TakeWorkers(header_));
  return TakeCuts(header_);
}

// An announcement may have come to some of the former shards alone, and so may
// a cut's end: it counts.
absl::Status ShardImporter::TakeCuts(const ShardStateHeader& header) {
  for (const ShardStateHeader::Cut& from : header.cuts()) {
    const std::optional<CutUse> use = CutUseOf(from.purpose());
    if (!use.has_value()) {
      return Refuse(absl::StrCat("it has cut ", from.id(),
                                 " of the unknown purpose ", from.purpose()));
    }
    controller_->cuts.push_back(
        {.id = from.id(),
         .clocks = {from.clocks().begin(), from.clocks().end()},
         .hold = absl::Nanoseconds(from.hold_nanoseconds()),
         .use = *use});
  }
  for (const ShardStateHeader::PastCut& from : header.past_cuts()) {
    controller_->past_cuts.push_back({from.id(), from.abandoned()});
  }
  return absl::OkStatus();
}

absl::Status ShardImporter::TakeWorkers(const ShardStateHeader& header) {
  const size_t workers = config_->controller.workers.size();
  const bool first = !controller_.has_value();
  if (options_.values_only) return ForgetWorkers(header);
  if (static_cast<size_t>(header.workers_size()) != workers) {
    return TakeOtherWorkers(header);
  }
  if (first) {
    controller_.emplace();
    controller_->workers.resize(workers);
    total_clocks_ = header.total_clocks();
  } else if (header.total_clocks() != total_clocks_) {
    return Refuse(absl::StrCat("its job has ", header.total_clocks(),
                               " clocks, another state's ", total_clocks_));
  }
  for (size_t rank = 0; rank < workers; ++rank) {
    const ShardStateHeader::Worker& from =
        header.workers(static_cast<int>(rank));
    ControllerState::Worker& worker = controller_->workers[rank];
    if (!first && (worker.closed != from.closed() ||
                   worker.finished != from.finished())) {
      return Refuse(absl::StrCat(
          "it is of another cut: ", config_->controller.workers[rank].name,
          " has closed ", from.closed(), " clocks there, ", worker.closed,
          " in another state"));
    }
    worker.closed = from.closed();
    worker.finished = from.finished();
    // A shard that takes no part knows of no set.
    worker.clocks_behind = std::max(worker.clocks_behind, from.clocks_behind());
    clocks_ = std::max(clocks_, from.closed());
    if (!options_.with_counts) continue;
    worker.left_out_pushes += from.left_out_pushes();
    non_finite_[rank] += from.non_finite();
  }
  return TakeCounts(header);
}

absl::Status ShardImporter::ForgetWorkers(const ShardStateHeader& header) {
  for (const ShardStateHeader::Worker& from : header.workers()) {
    clocks_ = std::max(clocks_, from.closed());
    former_clock_ =
        std::min(former_clock_.value_or(from.closed()), from.closed());
  }
  if (controller_.has_value()) return absl::OkStatus();
  controller_.emplace();
  controller_->workers.resize(config_->controller.workers.size());
  return absl::OkStatus();
}

// Where all workers are at one clock, others can begin there.
absl::Status ShardImporter::TakeOtherWorkers(const ShardStateHeader& header) {
  const size_t workers = config_->controller.workers.size();
  const auto refuse = [&](absl::string_view why) {
    return Refuse(absl::StrCat("it is of ", header.workers_size(),
                               " workers, the job has ", workers, why));
  };
  if (!options_.begins_attempt || header.workers_size() == 0) return refuse("");
  const int64_t closed = header.workers(0).closed();
  bool finished = true;
  for (const ShardStateHeader::Worker& from : header.workers()) {
    if (from.closed() != closed) {
      return refuse(absl::StrCat(", and these have closed ", closed, " and ",
                                 from.closed(),
                                 " clocks: others cannot take their places"));
    }
    finished &= from.finished();
  }
  if (!controller_.has_value()) {
    controller_.emplace();
    controller_->workers.resize(workers, {closed, finished, 0});
    total_clocks_ = header.total_clocks();
  } else if (controller_->workers[0].closed != closed) {
    return Refuse(absl::StrCat("it is of another cut: the workers have closed ",
                               closed, " clocks there, ",
                               controller_->workers[0].closed,
                               " in another state"));
  }
  clocks_ = std::max(clocks_, closed);
  return TakeCounts(header);
}

absl::Status ShardImporter::TakeCounts(const ShardStateHeader& header) {
  // Of one cut, so all states say the same.
  controller_->skipped_through =
      std::max(controller_->skipped_through, header.skipped_through());
  if (!options_.with_counts) return absl::OkStatus();
  // SYNC skips a clock on all shards; else each shard skips pushes.
  controller_->skipped_clocks =
      config_->regimes.AllSync()
          ? std::max(controller_->skipped_clocks, header.skipped_clocks())
          : controller_->skipped_clocks + header.skipped_clocks();
  controller_->duplicate_blocks += header.duplicate_blocks();
  controller_->abandoned_cuts += header.abandoned_cuts();
  non_finite_total_ += header.non_finite();
  return absl::OkStatus();
}

absl::Status ShardImporter::TakeTables(const ShardStateHeader& header) {
  tables_.clear();
  former_.clear();
  if (static_cast<size_t>(header.tables_size()) > config_->tables.size()) {
    return Refuse(absl::StrCat("it has ", header.tables_size(),
                               " tables, the job ", config_->tables.size()));
  }
  for (const ShardStateHeader::Table& from : header.tables()) {
    const auto found = std::find_if(
        config_->tables.begin(), config_->tables.end(),
        [&](const auto& table) { return table.layout.name == from.name(); });
    if (found == config_->tables.end()) {
      return Refuse(absl::StrCat("the job has no table ", Shown(from.name())));
    }
    const TableOptions& options = found->options;
    const size_t state =
        RowOptimizer(options.optimizer, options.dim).state_floats();
    const std::string optimizer = OptimizerStateName(options.optimizer);
    const bool same_state =
        from.state_floats() == state && from.optimizer() == optimizer;
    if (from.dim() != options.dim || !(same_state || options_.values_only)) {
      return Refuse(
          absl::StrCat("table '", from.name(), "' has rows of ", from.dim(),
                       " values and ", from.state_floats(), " of ",
                       Shown(from.optimizer()), ", the job's has ", options.dim,
                       " and ", state, " of '", optimizer, "'"));
    }
    if (from.state_floats() > kSlotsMax * from.dim()) {
      return Refuse(
          absl::StrCat("table '", from.name(), "' has ", from.state_floats(),
                       " floats of an optimizer in a row of ", from.dim()));
    }
    absl::StatusOr<TableMap> map = TableMap::Create(from.slots(), 1);
    if (!map.ok()) return Refuse(map.status().message());
    const auto table = static_cast<uint32_t>(found - config_->tables.begin());
    SYNCLINE_RETURN_IF_ERROR(TakeSlots(table, from.slots()));
    former_.push_back(
        {*std::move(map), RowLayout(from.dim(), from.state_floats())});
    tables_.push_back(table);
  }
  return absl::OkStatus();
}

// Slots are the top bits of a hash. Where the job has another number of them,
// those that come are noted at the finer of both cuts.
absl::Status ShardImporter::TakeSlots(uint32_t table, uint32_t former_slots) {
  std::vector<bool>& come = slots_come_[table];
  const size_t slots =
      std::max(former_slots, layout_->tables()[table].map.slots());
  if (come.size() == slots) return absl::OkStatus();
  if (std::find(come.begin(), come.end(), true) != come.end() ||
      come.size() > slots) {
    return Refuse(absl::StrCat("table '", layout_->tables()[table].name,
                               "' has ", former_slots,
                               " slots, another number than another state's"));
  }
  come.resize(slots);
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> ShardImporter::TableOf(const ShardStateReader& reader,
                                                uint32_t index) const {
  if (index < tables_.size()) return tables_[index];
  return reader.Damage(absl::StrCat("table ", index, " of ", tables_.size()));
}

// --- Dense blocks ------------------------------------------------------------

absl::Status ShardImporter::OpenTheBlock(const ShardStateReader& reader,
                                         const BlockStateReader::Piece& piece) {
  block_.reset();
  const auto found = index_of_.find(piece.block);
  if (found == index_of_.end()) {
    if (options_.passes_over_others) return absl::OkStatus();
    return Refuse(absl::StrCat("block ", piece.block, " is another shard's"));
  }
  const BlockIndex index = found->second;
  if (piece.elements != layout_->counts()[index]) {
    return Refuse(absl::StrCat("block ", piece.block, " has ", piece.elements,
                               " elements, expected ",
                               layout_->counts()[index]));
  }
  if (blocks_come_[index]) {
    return reader.Damage(absl::StrCat("block ", piece.block, " comes twice"));
  }
  blocks_come_[index] = true;
  block_ = index;
  if (!options_.values_only) {
    executor_->dense().SetUpdates(index, piece.updates);
  }
  return absl::OkStatus();
}

absl::Status ShardImporter::ReadDense(const ShardStateReader& reader,
                                      const ShardStateReader::Record& record) {
  SYNCLINE_ASSIGN_OR_RETURN(const BlockStateReader::Piece piece,
                            blocks_.Take(reader, record));
  if (is_older_) return absl::OkStatus();
  if (piece.begins) SYNCLINE_RETURN_IF_ERROR(OpenTheBlock(reader, piece));
  const bool is_taken = piece.array == 0 || !options_.values_only;
  if (!block_.has_value() || !is_taken) return absl::OkStatus();
  if (record.is_passed_over) return reader.Damage("its block is another one");
  const absl::Span<float> out =
      executor_->dense().mutable_array(*block_, static_cast<int>(piece.array));
  std::memcpy(out.data() + piece.first, piece.bytes.data(), piece.bytes.size());
  return absl::OkStatus();
}

// --- Tables ------------------------------------------------------------------

absl::Status ShardImporter::ReadPart(const ShardStateReader& reader,
                                     const ShardStateReader::Record& record) {
  TablePart part;
  SYNCLINE_RETURN_IF_ERROR(reader.Parse(record, &part));
  part_.emplace();
  SYNCLINE_ASSIGN_OR_RETURN(part_->table, TableOf(reader, part.table()));
  part_->counters = part.filter_counters();
  part_->sightings = part.filter_sightings();
  part_->changes_only = part.changes_only();
  SYNCLINE_RETURN_IF_ERROR(OpenThePart(reader, part));
  std::string problem;
  if (chain_.OpenPart(part, &problem)) return absl::OkStatus();
  return reader.Damage(absl::StrCat(
      "table '", layout_->tables()[part_->table].name, "': ", problem));
}

absl::Status ShardImporter::OpenThePart(const ShardStateReader& reader,
                                        const TablePart& part) {
  const TableLayout& table = layout_->tables()[part_->table];
  const uint32_t slots = former_[part.table()].map.slots();
  part_->former = part.table();
  part_->slots.resize(slots);
  uint32_t end = 0;  // of the runs so far
  for (const TablePart::Run& run : part.slots()) {
    if (run.count() == 0 || run.first() < end || run.first() >= slots ||
        run.count() > slots - run.first()) {
      return reader.Damage(absl::StrCat("slots ", run.first(), " and ",
                                        run.count(), " in all of table '",
                                        table.name, "'"));
    }
    end = run.first() + run.count();
    for (uint32_t slot = run.first(); slot < end; ++slot) {
      part_->slots[slot] = true;
      SYNCLINE_RETURN_IF_ERROR(TakeSlot(reader, slot));
    }
  }
  return absl::OkStatus();
}

absl::Status ShardImporter::TakeSlot(const ShardStateReader& reader,
                                     uint32_t former_slot) {
  const TableLayout& table = layout_->tables()[part_->table];
  std::vector<bool>& come = slots_come_[part_->table];
  // Of the finer cut.
  const size_t of_former = come.size() / part_->slots.size();
  const size_t of_now = come.size() / table.map.slots();
  for (size_t i = 0; i < of_former; ++i) {
    const size_t fine = former_slot * of_former + i;
    const auto slot = static_cast<uint32_t>(fine / of_now);
    if (!IsMine(part_->table, slot)) {
      if (options_.passes_over_others || is_older_) continue;
      return Refuse(absl::StrCat("slot ", slot, " of table '", table.name,
                                 "' is another shard's"));
    }
    if (come[fine] && !is_older_) {
      return reader.Damage(absl::StrCat("slot ", slot, " of table '",
                                        table.name, "' comes twice"));
    }
    come[fine] = true;
    if (part_->mine.empty() || part_->mine.back() != slot) {
      part_->mine.push_back(slot);
    }
  }
  return absl::OkStatus();
}

absl::Status ShardImporter::ReadFilter(const ShardStateReader& reader,
                                       const ShardStateReader::Record& record) {
  FilterPiece piece;
  SYNCLINE_RETURN_IF_ERROR(reader.Parse(record, &piece));
  if (piece.first() != part_->next_counter || record.bulk_bytes == 0 ||
      record.bulk_bytes > part_->counters - part_->next_counter) {
    return reader.Damage(absl::StrCat(
        record.bulk_bytes, " counters from ", piece.first(), " on, expected ",
        part_->counters - part_->next_counter, " from ", part_->next_counter));
  }
  part_->next_counter += record.bulk_bytes;
  if (options_.values_only || record.is_passed_over || is_older_) {
    return absl::OkStatus();
  }
  part_->filter_fits &=
      executor_->tables()
          .shard(part_->table)
          .ImportFilter(part_->mine, part_->counters, part_->sightings,
                        piece.first(),
                        {reinterpret_cast<const uint8_t*>(record.bulk.data()),
                         record.bulk.size()});
  return absl::OkStatus();
}

absl::Status ShardImporter::CheckRow(const ShardStateReader& reader,
                                     const char* row, uint8_t place) {
  const TableLayout& table = layout_->tables()[part_->table];
  const int64_t key = RowLayout::Key(row);
  const auto damage = [&](absl::string_view problem) {
    return reader.Damage(absl::StrCat("the row of key ", key, " of table '",
                                      table.name, "' ", problem));
  };
  if (!part_->slots[former_[part_->former].map.SlotOf(key)]) {
    return damage("is not of the slots that were announced");
  }
  const uint64_t position = ColdPosition(key);
  if (part_->last_position.has_value() && position <= *part_->last_position) {
    return damage("comes twice, or out of order");
  }
  part_->last_position = position;
  const float score = RowLayout::Score(row);
  if (!std::isfinite(score) || score < 0) {
    return damage(absl::StrCat("has the score ", score));
  }
  if (RowLayout::Clock(row) > clocks_) {
    return damage(absl::StrCat("was pushed at clock ", RowLayout::Clock(row),
                               ", and no worker has closed more than ",
                               clocks_));
  }
  if (place > (RowBatch::kInMemory | RowBatch::kRead)) {
    return damage(absl::StrCat("was at place ", place));
  }
  return absl::OkStatus();
}

absl::Status ShardImporter::ReadRows(const ShardStateReader& reader,
                                     const ShardStateReader::Record& record) {
  RowsPiece piece;
  SYNCLINE_RETURN_IF_ERROR(reader.Parse(record, &piece));
  if (part_->next_counter != part_->counters) {
    return reader.Damage("rows come before the part's filter is whole");
  }
  TableShard& shard = executor_->tables().shard(part_->table);
  const size_t row_bytes = former_[part_->former].layout.bytes();
  const size_t count = piece.rows();
  const size_t gone = piece.gone();
  if (count + gone == 0 || count > kShardStateBulkMax ||
      gone > (part_->changes_only ? kShardStateBulkMax : 0) ||
      record.bulk_bytes != count * (row_bytes + 1) + gone * sizeof(int64_t)) {
    return reader.Damage(absl::StrCat(record.bulk_bytes, " bytes for ", count,
                                      " rows of ", row_bytes, " + 1 and ", gone,
                                      " keys without one"));
  }
  rows_read_ += count;
  gone_read_ += gone;
  if (record.is_passed_over) return absl::OkStatus();
  const char* const rows = record.bulk.data();
  const char* const places = rows + count * row_bytes;
  const TableMap& map = layout_->tables()[part_->table].map;
  for (size_t i = 0; i < count; ++i) {
    SYNCLINE_RETURN_IF_ERROR(CheckRow(reader, rows + i * row_bytes,
                                      static_cast<uint8_t>(places[i])));
  }
  // Those that count, close together: a table's disk takes many at once.
  taken_rows_.clear();
  taken_places_.clear();
  for (size_t i = 0; i < count; ++i) {
    const char* const row = rows + i * row_bytes;
    const int64_t key = RowLayout::Key(row);
    if (!IsMine(part_->table, map.SlotOf(key)) || !chain_.TakeRow(key) ||
        (options_.values_only && HadExpired(row))) {
      continue;
    }
    taken_rows_.insert(taken_rows_.end(), row, row + row_bytes);
    taken_places_.push_back(places[i]);
  }
  const size_t taken = taken_places_.size();
  const char* from = taken_rows_.data();
  if (options_.values_only) from = RowsThatBegin(from, taken);
  // The disk of this ps' tables is no fault of the checkpoint's.
  if (const absl::Status taken_in =
          shard.ImportRows(taken, from, taken_places_.data());
      !taken_in.ok()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(source_, ": ", config_->label,
                     ": its rows find no place here: ", taken_in.message()));
  }
  return ReadGone(reader, gone, places + count);
}

absl::Status ShardImporter::ReadGone(const ShardStateReader& reader,
                                     size_t count, const char* keys) {
  const TableMap& map = layout_->tables()[part_->table].map;
  for (size_t i = 0; i < count; ++i) {
    const auto key = static_cast<int64_t>(Load64(keys + i * sizeof(int64_t)));
    const uint64_t position = ColdPosition(key);
    if (!part_->slots[former_[part_->former].map.SlotOf(key)] ||
        (part_->last_gone.has_value() && position <= *part_->last_gone)) {
      return reader.Damage(absl::StrCat("key ", key,
                                        ", which has no row, is of other "
                                        "slots, comes twice or out of order"));
    }
    part_->last_gone = position;
    if (IsMine(part_->table, map.SlotOf(key))) chain_.TakeGone(key);
  }
  return absl::OkStatus();
}

bool ShardImporter::HadExpired(const char* row) const {
  const RowExpiry& expiry = expiries_[part_->table];
  return expiry.enabled() &&
         expiry.Judge(RowLayout::Score(row), RowLayout::Clock(row),
                      static_cast<uint32_t>(former_clock_.value_or(0)),
                      /*too_old=*/0) != RowExpiry::Verdict::kLives;
}

// A row keeps its score of the cut, without which it would expire at once.
const char* ShardImporter::RowsThatBegin(const char* rows, size_t count) {
  const RowLayout& from = former_[part_->former].layout;
  const TableOptions& options = config_->tables[part_->table].options;
  const RowOptimizer optimizer(options.optimizer, options.dim);
  const RowLayout to(options.dim, optimizer.state_floats());
  const RowExpiry& expiry = expiries_[part_->table];
  const auto clock = static_cast<uint32_t>(former_clock_.value_or(0));
  row_bytes_.resize(count * to.bytes());
  for (size_t i = 0; i < count; ++i) {
    const char* const old = rows + i * from.bytes();
    char* const row = row_bytes_.data() + i * to.bytes();
    RowLayout::SetKey(row, RowLayout::Key(old));
    RowLayout::SetPast(
        row,
        expiry.ScoreAt(RowLayout::Score(old), RowLayout::Clock(old), clock), 0);
    std::memcpy(RowLayout::Values(row), RowLayout::Values(old),
                options.dim * sizeof(float));
    optimizer.InitState(to.State(row));
  }
  return row_bytes_.data();
}

absl::Status ShardImporter::ClosePart(const ShardStateReader& reader) {
  if (!part_.has_value()) return absl::OkStatus();
  if (part_->next_counter != part_->counters) {
    return reader.Damage("the part before it has a filter that is not whole");
  }
  if (!part_->filter_fits && !is_older_) ++filters_left_out_;
  part_.reset();
  return absl::OkStatus();
}

absl::Status ShardImporter::ReadCounts(const ShardStateReader& reader,
                                       const ShardStateReader::Record& record,
                                       absl::Time now) {
  if (is_older_) return absl::OkStatus();
  TableCounts meta;
  SYNCLINE_RETURN_IF_ERROR(reader.Parse(record, &meta));
  SYNCLINE_ASSIGN_OR_RETURN(const uint32_t table,
                            TableOf(reader, meta.table()));
  const TableMap& map = layout_->tables()[table].map;
  const size_t counters = record.bulk.size() / kCounterBytes;
  if (meta.hot_keys_size() > kHotKeysMax ||
      meta.clock_ages_size() > kClockAgesMax ||
      counters > HotKeys::kRefusedCounters ||
      record.bulk.size() % kCounterBytes != 0) {
    return reader.Damage("more counts than a table has");
  }
  TableLaneState state;
  if (options_.with_counts) state.counts = CountsOf(meta);
  for (const TableCounts::HotKey& key : meta.hot_keys()) {
    if (!std::isfinite(key.pushes()) || key.pushes() < 0) {
      return reader.Damage(absl::StrCat("key ", key.key(), " was pushed ",
                                        key.pushes(), " times"));
    }
    if (!IsMine(table, map.SlotOf(key.key()))) continue;
    state.hot_keys.push_back({key.key(), key.pushes()});
  }
  for (size_t i = 0; i < counters; ++i) {
    const char* const at = record.bulk.data() + i * kCounterBytes;
    const auto key = static_cast<int64_t>(Load64(at));
    if (!IsMine(table, map.SlotOf(key))) continue;
    state.refused.push_back({key, Load64(at + 8), Load64(at + 16)});
  }
  state.refused_uncounted_max = meta.refused_uncounted_max();
  state.past.too_old = meta.too_old_clock();
  for (const TableCounts::ClockAge& from : meta.clock_ages()) {
    const absl::Duration age = absl::Nanoseconds(from.age_nanoseconds());
    const bool in_order = state.past.points.empty() ||
                          (from.clock() > state.past.points.back().clock &&
                           age <= state.past.points.back().age);
    if (age < absl::ZeroDuration() || from.clock() > clocks_ || !in_order) {
      return reader.Damage(absl::StrCat("clock ", from.clock(),
                                        " began at another time than clocks "
                                        "before it"));
    }
    state.past.points.push_back({age, from.clock()});
  }
  if (state.past.too_old > clocks_) {
    return reader.Damage(
        absl::StrCat("rows of clock ", state.past.too_old, " are too old"));
  }
  if (options_.values_only) return absl::OkStatus();
  executor_->tables().shard(table).ImportLane(state, now);
  return absl::OkStatus();
}

// --- The end -----------------------------------------------------------------

absl::Status ShardImporter::ReadTrailer(
    const ShardStateReader& reader, const ShardStateReader::Record& record) {
  ShardStateTrailer trailer;
  SYNCLINE_RETURN_IF_ERROR(reader.Parse(record, &trailer));
  if (trailer.blocks() == blocks_.blocks() &&
      header_.blocks() == blocks_.blocks() && trailer.rows() == rows_read_ &&
      trailer.gone() == gone_read_) {
    return absl::OkStatus();
  }
  return reader.Damage(
      absl::StrCat("it was written behind ", trailer.blocks(), " blocks and ",
                   trailer.rows(), " rows, ", blocks_.blocks(), " and ",
                   rows_read_, " were read",
                   trailer.gone() == gone_read_
                       ? ""
                       : absl::StrCat("; and behind ", trailer.gone(),
                                      " keys without a row, of which ",
                                      gone_read_, " were read")));
}

absl::Status ShardImporter::Finish() {
  const auto missing = [&](absl::string_view what) {
    return absl::DataLossError(
        absl::StrCat(config_->label, ": its state has no ", what,
                     sources_.empty() ? "" : ", in ", Listed(sources_)));
  };
  if (!controller_.has_value()) return missing("source");
  std::vector<uint32_t> absent;
  for (BlockIndex i = 0; i < blocks_come_.size(); ++i) {
    if (!blocks_come_[i]) absent.push_back(layout_->ids()[i]);
  }
  if (!absent.empty()) return missing(absl::StrCat("block ", Listed(absent)));
  for (uint32_t table = 0; table < slots_come_.size(); ++table) {
    const std::vector<bool>& come = slots_come_[table];
    const size_t of_now = come.size() / layout_->tables()[table].map.slots();
    for (size_t fine = 0; fine < come.size(); ++fine) {
      const auto slot = static_cast<uint32_t>(fine / of_now);
      if (!IsMine(table, slot) || come[fine]) continue;
      if (absent.empty() || absent.back() != slot) absent.push_back(slot);
    }
    if (absent.empty()) continue;
    return missing(absl::StrCat("slot ", Listed(absent), " of table '",
                                layout_->tables()[table].name, "'"));
  }
  executor_->non_finite().Import(non_finite_, non_finite_total_);
  if (filters_left_out_ > 0) {
    LogWarning("sightings of keys start anew: a filter has another size")
        .Field("job", config_->job_id)
        .Field("filters", filters_left_out_);
  }
  return absl::OkStatus();
}

}  // namespace syncline::ps
