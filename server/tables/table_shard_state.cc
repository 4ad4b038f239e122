// The state of a table besides its rows, and where imported state belongs.

#include <algorithm>
#include <iterator>
#include <vector>

#include "common/base/status_macros.h"
#include "server/tables/table_shard.h"

namespace syncline::ps {

std::vector<uint32_t> PartitionMap::SlotsOf(uint32_t partition) const {
  std::vector<uint32_t> slots;
  for (const uint32_t slot : map_.shard_slots(shard_)) {
    if (of_slot_[slot] == partition) slots.push_back(slot);
  }
  return slots;
}

TableLaneState TableLane::Export(absl::Time now) const {
  TableLaneState state;
  state.counts = counts_;
  state.hot_keys.assign(hot_keys_.entries().begin(), hot_keys_.entries().end());
  const SpaceSaving& refused = hot_keys_.refused();
  state.refused.assign(refused.counters().begin(), refused.counters().end());
  state.refused_uncounted_max = refused.uncounted_max();
  state.past = history_.Export(now);
  return state;
}

void TableLane::Import(const TableLaneState& state, absl::Time now) {
  const auto mine = [&](int64_t key) {
    return Has(partition_of_->OfHash(RowPartition::Hash(key)));
  };
  counts_.Add(state.counts);
  for (const HotKeys::Entry& entry : state.hot_keys) {
    if (mine(entry.key)) hot_keys_.Offer(entry.key, entry.pushes);
  }
  std::vector<SpaceSaving::Counter> refused;
  std::copy_if(state.refused.begin(), state.refused.end(),
               std::back_inserter(refused),
               [&](const SpaceSaving::Counter& c) { return mine(c.key); });
  hot_keys_.MergeRefused(refused, state.refused_uncounted_max);
  // Lanes see clocks begin at the same times.
  if (!state.past.points.empty() || state.past.too_old > 0) {
    history_.Import(state.past, now);
  }
  for (const auto& partition : partitions_) {
    partition->SetTooOld(history_.too_old());
  }
}

absl::Status TableShard::ImportRows(size_t count, const char* rows,
                                    const char* places) {
  TablePartition* partition = nullptr;
  for (size_t i = 0; i < count; ++i) {
    const char* const row = rows + i * row_bytes();
    TablePartition* const next = &Partition(
        partition_of_.OfHash(RowPartition::Hash(RowLayout::Key(row))));
    // A lane's partitions share the memory of what is to be written.
    if (partition != nullptr && next != partition) {
      SYNCLINE_RETURN_IF_ERROR(partition->FlushImported());
    }
    partition = next;
    SYNCLINE_RETURN_IF_ERROR(
        partition->ImportRow(row, static_cast<uint8_t>(places[i])));
  }
  return partition == nullptr ? absl::OkStatus() : partition->FlushImported();
}

bool TableShard::ImportFilter(absl::Span<const uint32_t> slots, uint64_t total,
                              uint64_t sightings, size_t first,
                              absl::Span<const uint8_t> counters) {
  bool fits = true;
  uint32_t last = partitions();  // none
  for (const uint32_t slot : slots) {
    const uint32_t partition = partition_of_.OfSlot(slot);
    if (partition == last) continue;
    last = partition;
    AdmissionFilter& filter = Partition(partition).filter();
    if (filter.counters().size() != total) {
      fits = false;
      continue;
    }
    filter.Merge(first, counters);
    filter.MergeSightings(sightings);
  }
  return fits;
}

void TableShard::ImportLane(const TableLaneState& state, absl::Time now) {
  TableLaneState rest = state;
  for (const auto& lane : lanes_) {
    lane->Import(rest, now);
    rest.counts = TableStats();  // counted once
  }
}

}  // namespace syncline::ps
