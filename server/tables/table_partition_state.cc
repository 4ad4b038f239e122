// TablePartition's rows on their way out and in.

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "server/tables/table_partition.h"

namespace syncline::ps {
namespace {

constexpr uint64_t kLastPosition = std::numeric_limits<uint64_t>::max();
// Rows that are written to disk together.
constexpr size_t kDiskBatch = 256;
// Changed keys that are kept: a quarter of the rows, and some of a small table.
// Where more have changed, all rows are not much more to write. Never more than
// there are rows in memory, which are larger than their keys.
constexpr size_t kChangesLeast = 1024;
constexpr size_t kChangesShare = 4;

}  // namespace

void TablePartition::ListResident(const SlotOf& slot_of,
                                  const std::vector<bool>& wanted,
                                  RowCursor* cursor) const {
  cursor->started = true;
  for (uint32_t row = 0; row < rows_.row_limit(); ++row) {
    if (rows_.mark(row) == 0) continue;
    const int64_t key = RowLayout::Key(rows_.At(row));
    if (!wanted.empty() && !wanted[slot_of(RowPartition::Hash(key))]) continue;
    cursor->resident.push_back({ColdPosition(key), key});
  }
  // A position is one key's.
  std::sort(cursor->resident.begin(), cursor->resident.end());
}

bool TablePartition::AppendRow(int64_t key, const char* spilled,
                               RowBatch* out) const {
  const uint32_t row = rows_.Find(key, RowPartition::Hash(key));
  if (row != kNone) {
    out->rows.append(rows_.At(row), context_->layout.bytes());
    const bool read = (rows_.mark(row) & kRead) != 0;
    out->places.push_back(
        static_cast<char>(RowBatch::kInMemory | (read ? RowBatch::kRead : 0)));
  } else if (spilled != nullptr) {
    out->rows.append(reinterpret_cast<const char*>(&key), sizeof(key));
    out->rows.append(spilled, context_->layout.spilled_bytes());
    out->places.push_back(0);
  } else {
    return false;  // it expired since it was listed
  }
  ++out->count;
  return true;
}

// Two lists by position, merged: the rows that were in memory at the beginning,
// and those that the cold store has now. A row of neither list can only be one
// that the store had and that was read back since, and those keep their copy.
absl::Status TablePartition::ExportRows(const SlotOf& slot_of,
                                        const std::vector<bool>& wanted,
                                        size_t limit, RowCursor* cursor,
                                        RowBatch* out) {
  if (!cursor->started) ListResident(slot_of, wanted, cursor);
  const auto& resident = cursor->resident;
  const std::vector<int64_t>& cold = scratch_->keys;
  scratch_->keys.clear();
  scratch_->cold_bytes.clear();
  if (context_->cold != nullptr) {
    SYNCLINE_RETURN_IF_ERROR(context_->cold->Scan(
        id_, cursor->from, limit, ColdStore::Damaged::kFails, &scratch_->keys,
        &scratch_->cold_bytes));
  }
  // Beyond the last row of a full answer the disk has more to say.
  const bool cut = cold.size() == limit;
  size_t at = 0;  // in `cold`
  uint64_t last = 0;
  while (out->count < limit) {
    const bool has_cold = at < cold.size();
    const bool has_resident = cursor->next < resident.size();
    if (!has_cold && (cut || !has_resident)) break;
    const uint64_t cold_at = has_cold ? ColdPosition(cold[at]) : kLastPosition;
    last = has_resident ? std::min(cold_at, resident[cursor->next].first)
                        : cold_at;
    const bool is_cold = has_cold && cold_at == last;
    const int64_t key = is_cold ? cold[at] : resident[cursor->next].second;
    const char* const spilled = is_cold
                                    ? scratch_->cold_bytes.data() +
                                          at * context_->layout.spilled_bytes()
                                    : nullptr;
    if (is_cold) ++at;
    if (has_resident && resident[cursor->next].second == key) ++cursor->next;
    if (wanted.empty() || wanted[slot_of(RowPartition::Hash(key))]) {
      AppendRow(key, spilled, out);
    }
  }
  cursor->done = last == kLastPosition ||
                 (!cut && at == cold.size() && cursor->next == resident.size());
  cursor->from = last + 1;
  return absl::OkStatus();
}

ChangedKeys::Changes TablePartition::CloseChanges(uint64_t base_cut,
                                                  uint64_t cut) {
  const size_t share = (rows_.size() + cold_rows_) / kChangesShare;
  return changes_.Close(
      base_cut, cut,
      std::max<size_t>(kChangesLeast, std::min<size_t>(share, rows_.size())));
}

absl::Status TablePartition::ExportKeys(absl::Span<const int64_t> keys,
                                        RowBatch* out,
                                        std::vector<int64_t>* gone) {
  const size_t bytes = context_->layout.spilled_bytes();
  std::vector<ColdKey> cold;
  std::vector<ColdFound> found;
  std::vector<char> spilled;
  for (size_t begin = 0; begin < keys.size(); begin += kDiskBatch) {
    const auto some = keys.subspan(begin, kDiskBatch);
    cold.clear();
    for (const int64_t key : some) {
      if (cold_rows_ == 0) break;
      if (rows_.Find(key, RowPartition::Hash(key)) == kNone) {
        cold.push_back({id_, key});
      }
    }
    found.resize(cold.size());
    spilled.resize(cold.size() * bytes);
    if (!cold.empty()) {
      SYNCLINE_RETURN_IF_ERROR(
          context_->cold->Get(cold, spilled.data(), found.data()));
    }
    size_t at = 0;  // in `cold`
    for (const int64_t key : some) {
      const bool asked = at < cold.size() && cold[at].key == key;
      const char* const row = asked && found[at] == ColdFound::kYes
                                  ? spilled.data() + at * bytes
                                  : nullptr;
      if (asked) ++at;
      if (!AppendRow(key, row, out)) gone->push_back(key);
    }
  }
  return absl::OkStatus();
}

absl::Status TablePartition::ImportRow(const char* row, uint8_t place) {
  const int64_t key = RowLayout::Key(row);
  const bool to_disk = context_->cold != nullptr &&
                       (rows_.full() || !(place & RowBatch::kInMemory));
  if (to_disk) {
    // From now on a row that changes in memory may have a copy on disk.
    watches_use_ = true;
    scratch_->cold_keys.push_back({id_, key});
    scratch_->cold_bytes.insert(scratch_->cold_bytes.end(), row + sizeof(key),
                                row + context_->layout.bytes());
    return scratch_->cold_keys.size() < kDiskBatch ? absl::OkStatus()
                                                   : FlushImported();
  }
  const bool read = (place & RowBatch::kRead) != 0;
  uint32_t at = kNone;
  if (!rows_.full()) {
    at = rows_.Add(key, RowPartition::Hash(key),
                   kThere | kChanged | (read ? kRead : 0));
  }
  if (at == kNone) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "table ", context_->options.name, ": the ",
        context_->options.memory_bytes,
        " bytes of memory that it has here do not hold the rows of its state"));
  }
  watches_use_ |= rows_.size() > rows_.rows_max() / 2;
  std::copy_n(row + sizeof(key), context_->layout.spilled_bytes(),
              RowLayout::Spilled(rows_.At(at)));
  return absl::OkStatus();
}

absl::Status TablePartition::FlushImported() {
  if (scratch_->cold_keys.empty()) return absl::OkStatus();
  const absl::Status written =
      context_->cold->Put(scratch_->cold_keys, scratch_->cold_bytes.data());
  if (written.ok()) cold_rows_ += scratch_->cold_keys.size();
  scratch_->cold_keys.clear();
  scratch_->cold_bytes.clear();
  WatchDisk();
  return Annotate(written, absl::StrCat("table ", context_->options.name));
}

}  // namespace syncline::ps
