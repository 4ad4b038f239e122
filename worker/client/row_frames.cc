#include "worker/client/row_frames.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace syncline::worker {
namespace {

using Owner = std::shared_ptr<const void>;

TableRows ToProto(const TableRowSpan& range) {
  TableRows rows;
  rows.set_table(range.table);
  rows.set_rows(range.count);
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

// True if `header` lists exactly the rows of `chunk`.
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
  for (const TableRowSpan& range : chunk.ranges) {
    const RowBatch& table = *tables[range.table];
    *header->add_tables() = ToProto(range);
    payload->push_back(BorrowedSlice(table.keys().data() + range.first,
                                     range.count * sizeof(int64_t), owner));
    const float* const gradients = table.gradient(range.first);
    const size_t count = Elements(table, range.count);
    payload->push_back(
        chunk.type == ElementType::kFloat32
            ? BorrowedSlice(gradients, count * sizeof(float), owner)
            : NarrowSlice(chunk.type, gradients, count));
  }
}

void AddWantedKeys(absl::Span<RowBatch* const> tables, const RowChunk& chunk,
                   const Owner& owner, PullHeader* header,
                   std::vector<grpc::Slice>* payload) {
  for (const TableRowSpan& range : chunk.ranges) {
    const RowBatch& table = *tables[range.table];
    *header->add_tables() = ToProto(range);
    payload->push_back(BorrowedSlice(table.wanted_keys().data() + range.first,
                                     range.count * sizeof(int64_t), owner));
  }
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
                     chunk.ranges.size(), " with ", bytes));
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
