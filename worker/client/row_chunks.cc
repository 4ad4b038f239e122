#include "worker/client/row_chunks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace syncline::worker {
namespace {

size_t RowBytes(const RowBatch& table, ElementType type) {
  return sizeof(int64_t) +
         static_cast<size_t>(table.dim()) * ElementBytes(type);
}

class Cutter {
 public:
  Cutter(uint32_t shard, ElementType type, size_t chunk_bytes)
      : chunk_bytes_(chunk_bytes) {
    open_.shard = shard;
    open_.type = type;
  }

  // Rows that travel together, following those that were added before.
  void Add(const TableRowSpan& rows, size_t bytes) {
    if (!open_.ranges.empty() && open_.bytes + bytes > chunk_bytes_) Close();
    open_.bytes += bytes;
    if (!open_.ranges.empty() && Follows(open_.ranges.back(), rows)) {
      open_.ranges.back().count += rows.count;
    } else {
      open_.ranges.push_back(rows);
    }
  }

  // How many rows of `row_bytes` still fit; at least one.
  size_t Room(size_t row_bytes) {
    const auto room = [&] {
      return open_.bytes < chunk_bytes_
                 ? (chunk_bytes_ - open_.bytes) / row_bytes
                 : 0;
    };
    if (room() == 0 && !open_.ranges.empty()) Close();
    return std::max<size_t>(room(), 1);
  }

  std::vector<RowChunk> Finish() {
    if (!open_.ranges.empty()) Close();
    return std::move(chunks_);
  }

 private:
  static bool Follows(const TableRowSpan& a, const TableRowSpan& b) {
    return a.table == b.table && a.first + a.count == b.first;
  }
  void Close() {
    RowChunk next{.shard = open_.shard, .type = open_.type};
    chunks_.push_back(std::move(open_));
    open_ = std::move(next);
  }

  const size_t chunk_bytes_;
  RowChunk open_;
  std::vector<RowChunk> chunks_;
};

// Calls `visit(from, to)` for the places of the runs, joined where one begins
// at the end of the one before.
template <typename Visit>
void ForEachStretch(absl::Span<const SlotRun> runs, Visit visit) {
  for (size_t i = 0; i < runs.size();) {
    const uint32_t from = runs[i].first;
    uint32_t to = from;
    for (; i < runs.size() && runs[i].first == to; ++i) to += runs[i].count;
    visit(from, to);
  }
}

}  // namespace

size_t RowChunk::key_bytes() const {
  size_t keys = 0;
  for (const TableRowSpan& range : ranges) keys += range.count;
  return keys * sizeof(int64_t);
}

absl::StatusOr<std::vector<RowChunk>> CutGradients(
    absl::Span<RowBatch* const> tables, uint32_t shard, ElementType type,
    size_t chunk_bytes, size_t message_bytes) {
  Cutter cutter(shard, type, chunk_bytes);
  for (uint32_t t = 0; t < tables.size(); ++t) {
    for (const SlotRun& run : tables[t]->ShardSlots(shard)) {
      const size_t bytes = run.count * RowBytes(*tables[t], type);
      if (bytes > message_bytes) {
        return absl::InvalidArgumentError(absl::StrCat(
            "table \"", tables[t]->name(), "\": ", run.count,
            " rows of one batch are in virtual slot ", run.slot, ", ", bytes,
            " bytes, and travel together, but a message has at most ",
            message_bytes, "; use smaller batches"));
      }
      cutter.Add({t, run.first, run.count}, bytes);
    }
  }
  return cutter.Finish();
}

std::vector<RowChunk> CutWanted(absl::Span<RowBatch* const> tables,
                                uint32_t shard, ElementType type,
                                size_t chunk_bytes, WantedPart part) {
  Cutter cutter(shard, type, chunk_bytes);
  for (uint32_t t = 0; t < tables.size(); ++t) {
    const size_t early = tables[t]->early_count();
    const size_t first = part == WantedPart::kEarly ? 0 : early;
    const absl::Span<const uint32_t> places =
        part == WantedPart::kEarly ? tables[t]->wanted().first(early)
                                   : tables[t]->wanted().subspan(early);
    const size_t row_bytes = RowBytes(*tables[t], type);
    ForEachStretch(
        tables[t]->ShardSlots(shard), [&](uint32_t from, uint32_t to) {
          const auto begin_of = [&](uint32_t place) {
            return static_cast<size_t>(
                std::lower_bound(places.begin(), places.end(), place) -
                places.begin());
          };
          const size_t end = begin_of(to);
          for (size_t at = begin_of(from); at < end;) {
            const size_t count = std::min(cutter.Room(row_bytes), end - at);
            cutter.Add({t, static_cast<uint32_t>(first + at),
                        static_cast<uint32_t>(count)},
                       count * row_bytes);
            at += count;
          }
        });
  }
  return cutter.Finish();
}

}  // namespace syncline::worker
