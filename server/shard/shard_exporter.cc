#include "server/shard/shard_exporter.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/state/block_state.h"
#include "common/update/optimizer_state.h"
#include "common/wire/wire_cut_use.h"

namespace syncline::ps {
namespace {

void AppendSlots(const std::vector<uint32_t>& slots, TablePart* part) {
  for (const uint32_t slot : slots) {
    TablePart::Run* const last =
        part->slots_size() > 0 ? part->mutable_slots(part->slots_size() - 1)
                               : nullptr;
    if (last != nullptr && last->first() + last->count() == slot) {
      last->set_count(last->count() + 1);
      continue;
    }
    TablePart::Run* const run = part->add_slots();
    run->set_first(slot);
    run->set_count(1);
  }
}

void SetCounts(const TableStats& counts, TableCounts* meta) {
  meta->set_read_from_memory(counts.read_from_memory);
  meta->set_read_from_disk(counts.read_from_disk);
  meta->set_read_absent(counts.read_absent);
  meta->set_unreadable_rows(counts.unreadable_rows);
  meta->set_pushed_rows(counts.pushed_rows);
  meta->set_refused_by_sightings(counts.refused_by_sightings);
  meta->set_refused_by_probability(counts.refused_by_probability);
  meta->set_refused_by_budget(counts.refused_by_budget);
  meta->set_expired_by_age(counts.expired_by_age);
  meta->set_expired_by_score(counts.expired_by_score);
  meta->set_spilled_rows(counts.spilled_rows);
  meta->set_loaded_rows(counts.loaded_rows);
}

void WriteCuts(const ControllerState& state, ShardStateHeader* header) {
  for (const ControllerState::Cut& from : state.cuts) {
    ShardStateHeader::Cut* const cut = header->add_cuts();
    cut->set_id(from.id);
    cut->mutable_clocks()->Add(from.clocks.begin(), from.clocks.end());
    cut->set_hold_nanoseconds(absl::ToInt64Nanoseconds(from.hold));
    cut->set_purpose(CutPurposeOf(from.use));
  }
  for (const ControllerState::PastCut& from : state.past_cuts) {
    ShardStateHeader::PastCut* const past = header->add_past_cuts();
    past->set_id(from.id);
    past->set_abandoned(from.abandoned);
  }
}

void Append64(uint64_t value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

ShardExporter::ShardExporter(const JobConfig* config, const ShardLayout* layout,
                             LaneExecutor* executor, const Lanes* lanes,
                             RunInLane run_in_lane, ShardStateSink* sink)
    : config_(config),
      layout_(layout),
      executor_(executor),
      lanes_(lanes),
      run_in_lane_(std::move(run_in_lane)),
      writer_(sink) {}

absl::Status ShardExporter::Export(const ControllerState& state,
                                   uint64_t cut_id, int64_t total_clocks,
                                   const ShardSelection& selection) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<BlockIndex> blocks,
                            SelectBlocks(selection));
  SYNCLINE_RETURN_IF_ERROR(
      WriteHeader(state, cut_id, total_clocks, selection, blocks));
  for (const BlockIndex block : blocks) {
    SYNCLINE_RETURN_IF_ERROR(WriteBlock(block));
  }
  for (uint32_t table = 0; table < layout_->tables().size(); ++table) {
    SYNCLINE_RETURN_IF_ERROR(WriteTable(table, selection));
  }
  return End();
}

absl::Status ShardExporter::Begin(const ControllerState& state, uint64_t cut_id,
                                  int64_t total_clocks) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<BlockIndex> blocks,
                            SelectBlocks({}));
  return WriteHeader(state, cut_id, total_clocks, {}, blocks);
}

absl::Status ShardExporter::AddBlock(
    BlockIndex block, int64_t updates,
    absl::FunctionRef<absl::Span<const float>(int array)> array_of) {
  ++blocks_;
  return syncline::WriteBlock(layout_->ids()[block], layout_->counts()[block],
                              updates, executor_->dense().arrays(), array_of,
                              &writer_);
}

absl::Status ShardExporter::AddTables(int lane) {
  for (uint32_t table = 0; table < layout_->tables().size(); ++table) {
    TableShard& shard = executor_->tables().shard(table);
    for (uint32_t id = 0; id < shard.partitions(); ++id) {
      if (shard.LaneOfPartition(id) != lane) continue;
      SYNCLINE_RETURN_IF_ERROR(WritePart(table, id, {}));
    }
    if (lane >= shard.lanes()) continue;
    SYNCLINE_RETURN_IF_ERROR(WriteCounts(table, lane, true, {}));
  }
  return absl::OkStatus();
}

absl::Status ShardExporter::End() {
  // All lanes of what was exported have done the last clock's steps now.
  SYNCLINE_RETURN_IF_ERROR(executor_->non_finite().failure());
  SYNCLINE_RETURN_IF_ERROR(executor_->tables().Failure());
  if (blocks_ != blocks_begun_) {
    return absl::InternalError(absl::StrCat(config_->label, ": ", blocks_,
                                            " blocks were exported of ",
                                            blocks_begun_));
  }
  ShardStateTrailer trailer;
  trailer.set_blocks(blocks_);
  trailer.set_rows(rows_);
  trailer.set_gone(gone_);
  return writer_.Write(ShardStateKind::kTrailer, trailer, {});
}

absl::StatusOr<std::vector<BlockIndex>> ShardExporter::SelectBlocks(
    const ShardSelection& selection) const {
  const absl::Span<const uint32_t> ids = layout_->ids();
  std::vector<BlockIndex> blocks;
  if (!selection.blocks.has_value()) {
    for (BlockIndex i = 0; i < ids.size(); ++i) blocks.push_back(i);
    return blocks;
  }
  absl::flat_hash_map<uint32_t, BlockIndex> index_of;
  for (BlockIndex i = 0; i < ids.size(); ++i) index_of[ids[i]] = i;
  for (const uint32_t id : *selection.blocks) {
    const auto found = index_of.find(id);
    if (found == index_of.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(config_->label, ": block ", id,
                       " is to be exported, and is of another shard"));
    }
    blocks.push_back(found->second);
  }
  return blocks;
}

absl::StatusOr<std::vector<bool>> ShardExporter::SelectSlots(
    const ShardSelection& selection, uint32_t table) const {
  std::vector<bool> wanted;
  if (!selection.slots.has_value()) return wanted;
  const TableMap& map = layout_->tables()[table].map;
  wanted.resize(map.slots());
  if (table >= selection.slots->size()) return wanted;
  for (const uint32_t slot : (*selection.slots)[table]) {
    if (slot >= map.slots() || map.ShardOfSlot(slot) != layout_->shard()) {
      return absl::InvalidArgumentError(
          absl::StrCat(config_->label, ": slot ", slot, " of table '",
                       layout_->tables()[table].name,
                       "' is to be exported, and is of another shard"));
    }
    wanted[slot] = true;
  }
  return wanted;
}

absl::Status ShardExporter::WriteHeader(const ControllerState& state,
                                        uint64_t cut_id, int64_t total_clocks,
                                        const ShardSelection& selection,
                                        const std::vector<BlockIndex>& blocks) {
  const NonFiniteLog& non_finite = executor_->non_finite();
  ShardStateHeader header;
  header.set_format(kShardStateFormat);
  if (chain_.has_value() && !chain_->older.empty()) {
    header.set_format(kShardStateChainFormat);
    for (const StateFileInfo& from : chain_->older) {
      ShardStateHeader::Older* const older = header.add_older();
      older->set_cut_id(from.cut_id);
      older->set_bytes(from.bytes);
      older->set_crc32c(from.crc32c);
    }
  }
  header.set_job_id(config_->job_id);
  header.set_ps_rank(config_->shard);
  header.set_cut_id(cut_id);
  for (uint32_t rank = 0; rank < state.workers.size(); ++rank) {
    const ControllerState::Worker& from = state.workers[rank];
    ShardStateHeader::Worker* const worker = header.add_workers();
    worker->set_closed(from.closed);
    worker->set_finished(from.finished);
    worker->set_clocks_behind(from.clocks_behind);
    if (!selection.with_counts) continue;
    worker->set_left_out_pushes(from.left_out_pushes);
    worker->set_non_finite(non_finite.CountOf(rank));
  }
  WriteCuts(state, &header);
  header.set_skipped_through(state.skipped_through);
  header.set_total_clocks(total_clocks);
  header.set_optimizer(OptimizerStateName(config_->update.optimizer));
  header.set_slots(static_cast<uint32_t>(executor_->dense().arrays() - 1));
  header.set_blocks(static_cast<uint32_t>(blocks.size()));
  for (const JobConfig::Table& from : config_->tables) {
    ShardStateHeader::Table* const table = header.add_tables();
    table->set_name(from.layout.name);
    table->set_dim(from.options.dim);
    table->set_state_floats(static_cast<uint32_t>(
        RowOptimizer(from.options.optimizer, from.options.dim).state_floats()));
    table->set_optimizer(OptimizerStateName(from.options.optimizer));
    table->set_slots(from.layout.map.slots());
  }
  if (selection.with_counts) {
    header.set_skipped_clocks(state.skipped_clocks);
    header.set_duplicate_blocks(state.duplicate_blocks);
    header.set_abandoned_cuts(state.abandoned_cuts);
    header.set_non_finite(non_finite.total());
  }
  blocks_begun_ = blocks.size();
  cut_id_ = cut_id;
  return writer_.Write(ShardStateKind::kHeader, header, {});
}

absl::Status ShardExporter::WriteBlock(BlockIndex block) {
  const DenseUpdater& dense = executor_->dense();
  ++blocks_;
  DensePiece piece;
  piece.set_block(layout_->ids()[block]);
  piece.set_elements(layout_->counts()[block]);
  for (int array = 0; array < dense.arrays(); ++array) {
    piece.set_array(static_cast<uint32_t>(array));
    for (size_t first = 0; first < layout_->counts()[block];
         first += kBlockPieceFloats) {
      piece.set_first(first);
      SYNCLINE_RETURN_IF_ERROR(
          run_in_lane_(lanes_->LaneOf(block), [&]() -> absl::Status {
            if (!dense.IsSettled(block)) {
              return absl::InternalError(absl::StrCat(
                  config_->label, ": gradients of block ",
                  layout_->ids()[block], " are not applied at a cut"));
            }
            piece.set_updates(dense.updates(block));
            const absl::Span<const float> some =
                dense.array(block, array).subspan(first, kBlockPieceFloats);
            bulk_.assign(reinterpret_cast<const char*>(some.data()),
                         some.size() * sizeof(float));
            return absl::OkStatus();
          }));
      SYNCLINE_RETURN_IF_ERROR(
          writer_.Write(ShardStateKind::kDense, piece, bulk_));
    }
  }
  return absl::OkStatus();
}

absl::Status ShardExporter::WriteTable(uint32_t table,
                                       const ShardSelection& selection) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<bool> wanted,
                            SelectSlots(selection, table));
  TableShard& shard = executor_->tables().shard(table);
  for (uint32_t id = 0; id < shard.partitions(); ++id) {
    SYNCLINE_RETURN_IF_ERROR(WritePart(table, id, wanted));
  }
  for (int lane = 0; lane < shard.lanes(); ++lane) {
    SYNCLINE_RETURN_IF_ERROR(
        WriteCounts(table, lane, selection.with_counts, wanted));
  }
  return absl::OkStatus();
}

absl::Status ShardExporter::WritePart(uint32_t table, uint32_t partition,
                                      const std::vector<bool>& wanted) {
  TableShard& shard = executor_->tables().shard(table);
  const int lane = shard.LaneOfPartition(partition);
  std::vector<uint32_t> slots = shard.SlotsOf(partition);
  if (!wanted.empty()) {
    slots.erase(std::remove_if(slots.begin(), slots.end(),
                               [&](uint32_t slot) { return !wanted[slot]; }),
                slots.end());
  }
  if (slots.empty()) return absl::OkStatus();
  TablePart part;
  part.set_table(table);
  AppendSlots(slots, &part);
  ChangedKeys::Changes changes;
  SYNCLINE_RETURN_IF_ERROR(run_in_lane_(lane, [&] {
    part.set_filter_counters(shard.filter(partition).counters().size());
    part.set_filter_sightings(shard.filter(partition).sightings());
    if (chain_.has_value()) {
      changes = shard.CloseChanges(partition, chain_->base_cut, cut_id_);
    }
    return absl::OkStatus();
  }));
  part.set_changes_only(chain_.has_value() && !chain_->older.empty() &&
                        !changes.all);
  SYNCLINE_RETURN_IF_ERROR(writer_.Write(ShardStateKind::kPart, part, {}));
  SYNCLINE_RETURN_IF_ERROR(
      WriteFilter(table, partition, part.filter_counters()));
  return part.changes_only() ? WriteChanges(table, partition, changes.keys)
                             : WriteRows(table, partition, wanted);
}

absl::Status ShardExporter::WriteChanges(uint32_t table, uint32_t partition,
                                         absl::Span<const int64_t> keys) {
  TableShard& shard = executor_->tables().shard(table);
  // A key takes as much as a small row, at most.
  const size_t limit =
      kShardStateBulkMax / std::max(shard.row_bytes() + 1, sizeof(int64_t));
  std::vector<int64_t> gone;
  for (size_t begin = 0; begin < keys.size();
       begin += std::max<size_t>(1, limit)) {
    batch_.count = 0;
    batch_.rows.clear();
    batch_.places.clear();
    gone.clear();
    SYNCLINE_RETURN_IF_ERROR(
        run_in_lane_(shard.LaneOfPartition(partition), [&] {
          return shard.ExportKeys(
              partition, keys.subspan(begin, std::max<size_t>(1, limit)),
              &batch_, &gone);
        }));
    RowsPiece piece;
    piece.set_rows(static_cast<uint32_t>(batch_.count));
    piece.set_gone(static_cast<uint32_t>(gone.size()));
    rows_ += batch_.count;
    gone_ += gone.size();
    batch_.rows += batch_.places;
    for (const int64_t key : gone) {
      Append64(static_cast<uint64_t>(key), &batch_.rows);
    }
    SYNCLINE_RETURN_IF_ERROR(
        writer_.Write(ShardStateKind::kRows, piece, batch_.rows));
  }
  return absl::OkStatus();
}

absl::Status ShardExporter::WriteRows(uint32_t table, uint32_t partition,
                                      const std::vector<bool>& wanted) {
  TableShard& shard = executor_->tables().shard(table);
  const int lane = shard.LaneOfPartition(partition);
  const size_t limit =
      std::max<size_t>(1, kShardStateBulkMax / (shard.row_bytes() + 1));
  RowCursor cursor;
  while (!cursor.done) {
    batch_.count = 0;
    batch_.rows.clear();
    batch_.places.clear();
    SYNCLINE_RETURN_IF_ERROR(run_in_lane_(lane, [&] {
      return shard.ExportRows(partition, wanted, limit, &cursor, &batch_);
    }));
    if (batch_.count == 0) continue;
    RowsPiece piece;
    piece.set_rows(static_cast<uint32_t>(batch_.count));
    rows_ += batch_.count;
    batch_.rows += batch_.places;
    SYNCLINE_RETURN_IF_ERROR(
        writer_.Write(ShardStateKind::kRows, piece, batch_.rows));
  }
  return absl::OkStatus();
}

absl::Status ShardExporter::WriteFilter(uint32_t table, uint32_t partition,
                                        uint64_t total) {
  TableShard& shard = executor_->tables().shard(table);
  for (uint64_t first = 0; first < total; first += kShardStateBulkMax) {
    SYNCLINE_RETURN_IF_ERROR(
        run_in_lane_(shard.LaneOfPartition(partition), [&] {
          const absl::Span<const uint8_t> some =
              shard.filter(partition).counters().subspan(first,
                                                         kShardStateBulkMax);
          bulk_.assign(reinterpret_cast<const char*>(some.data()), some.size());
          return absl::OkStatus();
        }));
    FilterPiece piece;
    piece.set_first(first);
    SYNCLINE_RETURN_IF_ERROR(
        writer_.Write(ShardStateKind::kFilter, piece, bulk_));
  }
  return absl::OkStatus();
}

absl::Status ShardExporter::WriteCounts(uint32_t table, int lane,
                                        bool with_counts,
                                        const std::vector<bool>& wanted) {
  TableShard& shard = executor_->tables().shard(table);
  const TableMap& map = layout_->tables()[table].map;
  const auto goes = [&](int64_t key) {
    return wanted.empty() || wanted[map.SlotOf(key)];
  };
  TableLaneState state;
  SYNCLINE_RETURN_IF_ERROR(run_in_lane_(lane, [&] {
    state = shard.ExportLane(lane, MonotonicNow());
    return absl::OkStatus();
  }));
  TableCounts meta;
  meta.set_table(table);
  for (const HotKeys::Entry& entry : state.hot_keys) {
    if (!goes(entry.key)) continue;
    TableCounts::HotKey* const key = meta.add_hot_keys();
    key->set_key(entry.key);
    key->set_pushes(entry.pushes);
  }
  meta.set_refused_uncounted_max(state.refused_uncounted_max);
  for (const ClockHistory::Past::Point& point : state.past.points) {
    TableCounts::ClockAge* const age = meta.add_clock_ages();
    age->set_clock(point.clock);
    age->set_age_nanoseconds(absl::ToInt64Nanoseconds(point.age));
  }
  meta.set_too_old_clock(state.past.too_old);
  if (with_counts) SetCounts(state.counts, &meta);
  bulk_.clear();
  for (const SpaceSaving::Counter& counter : state.refused) {
    if (!goes(counter.key)) continue;
    Append64(static_cast<uint64_t>(counter.key), &bulk_);
    Append64(counter.count, &bulk_);
    Append64(counter.error, &bulk_);
  }
  return writer_.Write(ShardStateKind::kCounts, meta, bulk_);
}

}  // namespace syncline::ps
