#include "worker/client/row_frames.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace syncline::worker {
namespace {

using Owner = std::shared_ptr<const void>;

using Ranges = absl::Span<const TableRowSpan>;

// Calls `visit(ranges)` for the ranges of each table of a chunk.
template <typename Visit>
void ForEachTable(Ranges ranges, Visit visit) {
  for (size_t begin = 0; begin < ranges.size();) {
    size_t end = begin + 1;
    while (end < ranges.size() && ranges[end].table == ranges[begin].table) {
      ++end;
    }
    visit(ranges.subspan(begin, end - begin));
    begin = end;
  }
}

// REQUIRES: the ranges are of one table.
TableRows ToProto(Ranges ranges) {
  uint32_t count = 0;
  for (const TableRowSpan& range : ranges) count += range.count;
  TableRows rows;
  rows.set_table(ranges[0].table);
  rows.set_rows(count);
  return rows;
}

size_t Elements(const RowBatch& table, size_t rows) {
  return rows * static_cast<size_t>(table.dim());
}

grpc::Slice NarrowSlice(ElementType type, const float* values, size_t count) {
  grpc::Slice slice(count * ElementBytes(type));
  Narrow(type, values, const_cast<uint8_t*>(slice.begin()), count);
  return slice;
}

int TableCount(Ranges ranges) {
  int tables = 0;
  ForEachTable(ranges, [&](Ranges) { ++tables; });
  return tables;
}

// True if `header` lists exactly the rows of `chunk`.
bool Lists(const PullResponseHeader& header, const RowChunk& chunk) {
  int tables = 0;
  bool same = true;
  ForEachTable(chunk.ranges, [&](Ranges ranges) {
    const TableRows expected = ToProto(ranges);
    same = same && tables < header.tables_size() &&
           header.tables(tables).table() == expected.table() &&
           header.tables(tables).rows() == expected.rows();
    ++tables;
  });
  return same && tables == header.tables_size();
}

}  // namespace

grpc::Slice BorrowedSlice(const void* data, size_t bytes, const Owner& owner) {
  return grpc::Slice(
      const_cast<void*>(data), bytes,
      [](void* shared) { delete static_cast<Owner*>(shared); },
      new Owner(owner));
}

void CopyValues(const PayloadView& payload, ElementType type, size_t offset,
                size_t count, float* out) {
  if (type == ElementType::kFloat32) {
    return payload.CopyTo(offset, count * sizeof(float), out);
  }
  constexpr size_t kPiece = 2048;
  uint16_t piece[kPiece];
  for (size_t begin = 0; begin < count; begin += kPiece) {
    const size_t n = std::min(kPiece, count - begin);
    payload.CopyTo(offset + begin * sizeof(uint16_t), n * sizeof(uint16_t),
                   piece);
    Widen(type, piece, out + begin, n);
  }
}

void AddGradients(absl::Span<RowBatch* const> tables, const RowChunk& chunk,
                  const Owner& owner, PushHeader* header,
                  std::vector<grpc::Slice>* payload) {
  ForEachTable(chunk.ranges, [&](Ranges ranges) {
    const RowBatch& table = *tables[ranges[0].table];
    *header->add_tables() = ToProto(ranges);
    for (const TableRowSpan& range : ranges) {
      payload->push_back(BorrowedSlice(table.keys().data() + range.first,
                                       range.count * sizeof(int64_t), owner));
    }
    for (const TableRowSpan& range : ranges) {
      const float* const gradients = table.gradient(range.first);
      const size_t count = Elements(table, range.count);
      payload->push_back(
          chunk.type == ElementType::kFloat32
              ? BorrowedSlice(gradients, count * sizeof(float), owner)
              : NarrowSlice(chunk.type, gradients, count));
    }
  });
}

void AddWantedKeys(absl::Span<RowBatch* const> tables, const RowChunk& chunk,
                   const Owner& owner, PullHeader* header,
                   std::vector<grpc::Slice>* payload) {
  ForEachTable(chunk.ranges, [&](Ranges ranges) {
    const RowBatch& table = *tables[ranges[0].table];
    *header->add_tables() = ToProto(ranges);
    for (const TableRowSpan& range : ranges) {
      payload->push_back(BorrowedSlice(table.wanted_keys().data() + range.first,
                                       range.count * sizeof(int64_t), owner));
    }
  });
}

size_t ValueBytes(absl::Span<RowBatch* const> tables, const RowChunk& chunk) {
  size_t elements = 0;
  for (const TableRowSpan& range : chunk.ranges) {
    elements += Elements(*tables[range.table], range.count);
  }
  return elements * ElementBytes(chunk.type);
}

absl::Status StoreRows(absl::Span<RowBatch* const> tables,
                       const RowChunk& chunk, const PullResponseHeader& header,
                       const PayloadView& payload) {
  const size_t bytes = ValueBytes(tables, chunk);
  if (!Lists(header, chunk) || payload.size_bytes() != bytes) {
    return absl::InternalError(
        absl::StrCat("answered rows of ", header.tables_size(), " tables with ",
                     payload.size_bytes(), " bytes, expected ",
                     TableCount(chunk.ranges), " with ", bytes));
  }
  size_t offset = 0;
  for (const TableRowSpan& range : chunk.ranges) {
    RowBatch& table = *tables[range.table];
    const absl::Span<const uint32_t> rows =
        table.wanted().subspan(range.first, range.count);
    // Runs of neighbouring rows; usually all of them are one.
    for (size_t begin = 0; begin < rows.size();) {
      size_t end = begin + 1;
      while (end < rows.size() && rows[end] == rows[end - 1] + 1) ++end;
      const size_t count = Elements(table, end - begin);
      CopyValues(payload, chunk.type, offset, count, table.value(rows[begin]));
      for (size_t i = begin; i < end; ++i) {
        table.SetAsOf(rows[i], header.min_clock());
      }
      offset += count * ElementBytes(chunk.type);
      begin = end;
    }
  }
  return absl::OkStatus();
}

}  // namespace syncline::worker
