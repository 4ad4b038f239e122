#ifndef SYNCLINE_KERNELS_CUDA_WALK_ROW_PARTS_H_
#define SYNCLINE_KERNELS_CUDA_WALK_ROW_PARTS_H_

// Sums of what comes to each row, when its indices lie side by side
// (sorted_rows.h). A row that few indices name is one thread's, element by
// element, in order. One that more than kPartRows name is cut into parts of so
// many, from its first index on: the cut, and so the sum's bits, do not depend
// on other rows.

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/walk/lines.h"

namespace syncline::cuda {

inline constexpr int64_t kPartRows = 1024;

// Parts are found window by window, of kPartRows places of the order each. In
// one there begins at most one part of the row that comes from before, and one
// row that goes on behind it: two slots.
inline int64_t PartSlots(int64_t named) {
  return 2 * ((named + kPartRows - 1) / kPartRows);
}

// By slot, in memory of the device, [PartSlots]; places in the order.
struct PartArrays {
  int64_t* begins;      // -1: no part
  int64_t* row_begins;  // of the part's row
  int64_t* row_ends;
};
struct Parts {
  Global<const int64_t> begins;
  Global<const int64_t> row_begins;
  Global<const int64_t> row_ends;
};
inline Parts OnDevice(const PartArrays& arrays) {
  const int64_t* const begins = arrays.begins;
  const int64_t* const row_begins = arrays.row_begins;
  const int64_t* const row_ends = arrays.row_ends;
  return {OnDevice(begins), OnDevice(row_begins), OnDevice(row_ends)};
}

// Indices in the order of their rows.
template <typename At>
struct RowOrder {
  int64_t named;
  At at;
  Global<const int64_t> order;

  SYNCLINE_DEVICE int64_t RowAt(int64_t place) const {
    return at(order[place]);
  }
  SYNCLINE_DEVICE bool HasRow(int64_t place, int64_t row) const {
    return place >= 0 && place < named && RowAt(place) == row;
  }
  // The first place whose row is not below `row`.
  SYNCLINE_DEVICE int64_t BeginOf(int64_t row) const {
    int64_t begin = 0;
    int64_t end = named;
    while (begin < end) {
      const int64_t middle = begin + (end - begin) / 2;
      if (RowAt(middle) < row) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return begin;
  }
};

template <typename At>
struct FindParts {
  RowOrder<At> rows;
  Global<int64_t> begins;
  Global<int64_t> row_begins;
  Global<int64_t> row_ends;

  SYNCLINE_DEVICE void Write(int64_t slot, int64_t begin, int64_t row_begin,
                             int64_t row_end) const {
    const bool is_part = row_end - row_begin > kPartRows && begin < row_end;
    begins[slot] = is_part ? begin : -1;
    row_begins[slot] = row_begin;
    row_ends[slot] = row_end;
  }

  SYNCLINE_DEVICE void operator()(int64_t window) const {
    const int64_t first = window * kPartRows;
    const int64_t behind = first + kPartRows;
    const int64_t last = (behind < rows.named ? behind : rows.named) - 1;
    const int64_t row = rows.RowAt(first);
    const int64_t begin = rows.BeginOf(row);
    const int64_t parts = (first - begin + kPartRows - 1) / kPartRows;
    Write(2 * window, begin + parts * kPartRows, begin, rows.BeginOf(row + 1));
    const int64_t next = rows.RowAt(last);
    const int64_t next_begin = rows.BeginOf(next);
    Write(2 * window + 1, next_begin > first ? next_begin : rows.named,
          next_begin, rows.BeginOf(next + 1));
  }
};

// Adds rows that at most kPartRows indices name.
template <typename At, typename From, typename To>
struct AddShortRows {
  RowOrder<At> rows;
  int64_t row_count;
  int64_t width;
  From from;
  To to;

  SYNCLINE_DEVICE void operator()(int64_t element) const {
    const int64_t column = element % width;
    const int64_t begin = element / width % rows.named;
    const int64_t o = element / width / rows.named;
    const int64_t row = rows.RowAt(begin);
    if (rows.HasRow(begin - 1, row) || rows.HasRow(begin + kPartRows, row)) {
      return;
    }
    double sum = 0;
    for (int64_t k = begin; k < begin + kPartRows && rows.HasRow(k, row); ++k) {
      sum += from[(o * rows.named + rows.order[k]) * width + column];
    }
    to[(o * row_count + row) * width + column] += static_cast<float>(sum);
  }
};

// sums [outer, slot, width]
template <typename From>
struct SumPartsBody {
  Parts parts;
  int64_t slots;
  int64_t named;
  int64_t width;
  Global<const int64_t> order;
  From from;
  Global<double> sums;

  template <typename Group>
  SYNCLINE_DEVICE void operator()(const Group& group, int64_t line,
                                  int64_t n) const {
    int64_t begin = -1;
    int64_t end = -1;
    const int64_t slot = line / width % slots;
    if (n > 0) begin = parts.begins[slot];
    if (begin >= 0) {
      end = parts.row_ends[slot];
      if (end > begin + n) end = begin + n;
    }
    const int64_t o = line / width / slots;
    double sum = 0;
    for (int64_t k = begin + group.rank(); k < end; k += group.size()) {
      sum += from[(o * named + order[k]) * width + line % width];
    }
    sum = group.Fold(sum, Plus());
    if (group.rank() == 0 && n > 0) sums[line] = sum;
  }
};

// Adds rows that more indices name, from the sums of their parts.
template <typename At, typename To>
struct AddLongRows {
  RowOrder<At> rows;
  Parts parts;
  int64_t slots;
  int64_t row_count;
  int64_t width;
  Global<const double> sums;
  To to;

  SYNCLINE_DEVICE void operator()(int64_t line) const {
    const int64_t slot = line / width % slots;
    const int64_t begin = parts.begins[slot];
    if (begin < 0 || begin != parts.row_begins[slot]) return;
    const int64_t column = line % width;
    const int64_t o = line / width / slots;
    double sum = sums[line];
    const int64_t end = parts.row_ends[slot];
    for (int64_t k = begin + kPartRows; k < end; k += kPartRows) {
      const int64_t other = 2 * (k / kPartRows);  // it comes from before
      sum += sums[(o * slots + other) * width + column];
    }
    to[(o * row_count + rows.RowAt(begin)) * width + column] +=
        static_cast<float>(sum);
  }
};

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_WALK_ROW_PARTS_H_
