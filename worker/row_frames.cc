#include "worker/row_frames.h"

#include "absl/strings/str_cat.h"

namespace syncline {
namespace {

using Owner = std::shared_ptr<const void>;

TableRows ToProto(const RowRange& range) {
  TableRows rows;
  rows.set_table(range.table);
  rows.set_rows(range.count);
  return rows;
}

size_t RowBytes(const RowBatch& table) {
  return static_cast<size_t>(table.dim()) * sizeof(float);
}

// Whether `header` lists exactly the rows of `chunk`.
bool Lists(const PullResponseHeader& header, const RowChunk& chunk) {
  if (header.tables_size() != static_cast<int>(chunk.ranges.size())) {
    return false;
  }
  for (int i = 0; i < header.tables_size(); ++i) {
    if (header.tables(i).table() != chunk.ranges[i].table ||
        header.tables(i).rows() != chunk.ranges[i].count) {
      return false;
    }
  }
  return true;
}

}  // namespace

grpc::Slice BorrowedSlice(const void* data, size_t bytes, const Owner& owner) {
  return grpc::Slice(
      const_cast<void*>(data), bytes,
      [](void* shared) { delete static_cast<Owner*>(shared); },
      new Owner(owner));
}

void AddGradients(absl::Span<RowBatch* const> tables, const RowChunk& chunk,
                  const Owner& owner, PushHeader* header,
                  std::vector<grpc::Slice>* payload) {
  for (const RowRange& range : chunk.ranges) {
    const RowBatch& table = *tables[range.table];
    *header->add_tables() = ToProto(range);
    payload->push_back(BorrowedSlice(table.keys().data() + range.first,
                                     range.count * sizeof(int64_t), owner));
    payload->push_back(BorrowedSlice(table.gradient(range.first),
                                     range.count * RowBytes(table), owner));
  }
}

void AddWantedKeys(absl::Span<RowBatch* const> tables, const RowChunk& chunk,
                   const Owner& owner, PullHeader* header,
                   std::vector<grpc::Slice>* payload) {
  for (const RowRange& range : chunk.ranges) {
    const RowBatch& table = *tables[range.table];
    *header->add_tables() = ToProto(range);
    payload->push_back(BorrowedSlice(table.wanted_keys().data() + range.first,
                                     range.count * sizeof(int64_t), owner));
  }
}

size_t ValueBytes(absl::Span<RowBatch* const> tables, const RowChunk& chunk) {
  size_t bytes = 0;
  for (const RowRange& range : chunk.ranges) {
    bytes += range.count * RowBytes(*tables[range.table]);
  }
  return bytes;
}

absl::Status StoreRows(absl::Span<RowBatch* const> tables,
                       const RowChunk& chunk, const PullResponseHeader& header,
                       const PayloadView& payload) {
  const size_t bytes = ValueBytes(tables, chunk);
  if (!Lists(header, chunk) || payload.size_bytes() != bytes) {
    return absl::InternalError(
        absl::StrCat("answered rows of ", header.tables_size(), " tables with ",
                     payload.size_bytes(), " bytes, expected ",
                     chunk.ranges.size(), " with ", bytes));
  }
  size_t offset = 0;
  for (const RowRange& range : chunk.ranges) {
    RowBatch& table = *tables[range.table];
    const absl::Span<const uint32_t> rows =
        table.wanted().subspan(range.first, range.count);
    // Runs of neighbouring rows; usually all of them are one.
    for (size_t begin = 0; begin < rows.size();) {
      size_t end = begin + 1;
      while (end < rows.size() && rows[end] == rows[end - 1] + 1) ++end;
      const size_t run = (end - begin) * RowBytes(table);
      payload.CopyTo(offset, run, table.value(rows[begin]));
      for (size_t i = begin; i < end; ++i) {
        table.SetAsOf(rows[i], header.min_clock());
      }
      offset += run;
      begin = end;
    }
  }
  return absl::OkStatus();
}

}  // namespace syncline
