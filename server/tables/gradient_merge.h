#ifndef SYNCLINE_SERVER_TABLES_GRADIENT_MERGE_H_
#define SYNCLINE_SERVER_TABLES_GRADIENT_MERGE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/update/float_source.h"
#include "common/wire/table_map.h"

namespace syncline::ps {

// Gradients that one worker sent, of one or more slots of a shard.
struct GradientRows {
  absl::Span<const int64_t> keys;       // ascending by (slot, key), unique
  const FloatSource* values = nullptr;  // of the summed loss, keys x dim floats
  size_t first = 0;                     // element where they begin
};

// Reads the gradients of several workers as one: rows by (slot, key), those of
// the same key summed in the order of the workers, ((g0 + g1) + g2). Holds a
// few rows of each worker at a time. Thread-compatible; used again and again.
class GradientMerge {
 public:
  GradientMerge(const TableMap& map, size_t dim) : map_(map), dim_(dim) {}

  // The arrays that `ranks` refers to must stay until the last Next.
  void Start(absl::Span<const GradientRows> ranks);

  // The next rows, at most `limit`: their keys, and sums [rows x dim]. 0: that
  // was all.
  size_t Next(size_t limit, int64_t* keys, float* sums);

 private:
  // A worker's next row.
  struct Cursor {
    uint32_t slot;
    int64_t key;
    uint32_t rank;
    size_t row;
  };
  // Rows of one worker, copied together: a row of its own would cost a search
  // for the slice it lies in.
  struct Piece {
    size_t begin = 0;
    size_t end = 0;
    std::vector<float> values;
  };

  static bool Later(const Cursor& a, const Cursor& b);
  size_t NextOfOne(size_t limit, int64_t* keys, float* sums);
  size_t NextOfMany(size_t limit, int64_t* keys, float* sums);
  void PushCursor(uint32_t rank, size_t row);
  Cursor PopCursor();
  void AddRow(const Cursor& cursor, bool first, float* sum);
  const float* Values(const Cursor& cursor);

  const TableMap map_;
  const size_t dim_;
  absl::Span<const GradientRows> ranks_;
  size_t next_row_ = 0;          // of a lone worker
  std::vector<Cursor> cursors_;  // heap, lowest (slot, key, rank) first
  std::vector<Piece> pieces_;    // by rank
  std::vector<float> addend_;    // of rows that are too long for pieces
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_TABLES_GRADIENT_MERGE_H_
