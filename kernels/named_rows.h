#ifndef SYNCLINE_KERNELS_NAMED_ROWS_H_
#define SYNCLINE_KERNELS_NAMED_ROWS_H_

// Rows that are added to the rows of another array that indices name: gradients
// of what was gathered, and a scatter that adds. Rows that go to one place are
// added in the order of their indices; the error of their sum does not grow
// with their number (kernels/elementwise/row_sums.h).

#include <algorithm>
#include <cstdint>

#include "kernels/elementwise/loop.h"
#include "kernels/elementwise/row_sums.h"

namespace syncline {

// to [outer, rows, width]; from [outer, named, width].
struct NamedRows {
  int64_t outer = 1;
  int64_t rows = 0;
  int64_t named = 0;
  int64_t width = 0;
};

// Indices that are looked at together: bounds the scratch memory.
inline constexpr int64_t kNamedAtOnce = 1 << 20;

// Elements of scratch memory that AddNamedRows wants.
inline int64_t NamedRowsScratch(const NamedRows& s) {
  return s.named <= kRowBlock ? 0 : 2 * std::min(s.named, kNamedAtOnce);
}

namespace named_rows_internal {

// Indices [0, count) by buckets of rows, where some row may be named often:
// those of bucket b are members [ends[b - 1], ends[b]), in order.
struct Buckets {
  int64_t rows = 0;
  int64_t size = 0;  // at most `rows`
  uint32_t* ends = nullptr;
  uint32_t* members = nullptr;

  int64_t Of(int64_t row) const { return row < size ? row : row % size; }
  // More than kRowBlock members.
  bool IsLarge(int64_t b) const {
    return ends[b] - (b == 0 ? 0 : ends[b - 1]) > kRowBlock;
  }

  // False if no bucket is large; then members are not there.
  template <typename At>
  bool Fill(int64_t count, At at) {
    std::fill_n(ends, size, 0u);
    for (int64_t i = 0; i < count; ++i) ++ends[Of(at(i))];
    if (*std::max_element(ends, ends + size) <= kRowBlock) return false;
    uint32_t begin = 0;
    for (int64_t b = 0; b < size; ++b) {
      const uint32_t own = ends[b];
      ends[b] = begin;
      begin += own;
    }
    for (int64_t i = 0; i < count; ++i) {
      members[ends[Of(at(i))]++] = static_cast<uint32_t>(i);
    }
    if (size == rows) return true;
    // A row that is named often has its members side by side.
    for (int64_t b = 0; b < size; ++b) {
      if (!IsLarge(b)) continue;
      const auto by_row = [=](uint32_t i, uint32_t j) {
        const int64_t p = at(i), q = at(j);
        return p != q ? p < q : i < j;
      };
      uint32_t* const first = members + (b == 0 ? 0 : ends[b - 1]);
      uint32_t* const last = members + ends[b];
      if (!std::is_sorted(first, last, by_row)) std::sort(first, last, by_row);
    }
    return true;
  }
};

// to += the sum of rows of `from`.
inline void AddOften(const uint32_t* first, const uint32_t* last, int64_t width,
                     const float* from, float* to) {
  if (width == 1) {
    *to += SumOf(last - first, [=](int64_t i) { return from[first[i]]; });
    return;
  }
  for (int64_t c = 0; c < width; c += ShortRowSums::kWidth) {
    ShortRowSums sums(std::min(ShortRowSums::kWidth, width - c));
    for (const uint32_t* i = first; i != last; ++i) {
      const float* const row = from + *i * width + c;
      sums->Add([=](int64_t k) { return row[k]; });
    }
    sums->Write(/*accumulate=*/true, to + c);
  }
}

inline void AddRow(int64_t width, const float* from, float* to) {
  Emit(width, /*accumulate=*/true, to, [=](int64_t k) { return from[k]; });
}

// Adds the rows that the members of large buckets name.
template <typename At>
void AddLarge(const Buckets& buckets, At at, int64_t width, const float* from,
              float* to) {
  const uint32_t* last = buckets.members;
  for (int64_t b = 0; b < buckets.size; ++b) {
    const uint32_t* first = last;
    last = buckets.members + buckets.ends[b];
    if (last - first <= kRowBlock) continue;
    while (first != last) {
      const int64_t row = at(*first);
      const uint32_t* end = last;
      if (buckets.size != buckets.rows) {
        end =
            std::find_if(first, last, [=](uint32_t i) { return at(i) != row; });
      }
      if (end - first > kRowBlock) {
        AddOften(first, end, width, from, to + row * width);
        first = end;
      }
      for (; first != end; ++first) {
        AddRow(width, from + *first * width, to + row * width);
      }
    }
  }
}

}  // namespace named_rows_internal

// to[o, at(i)] += from[o, i] for each i < named. Which bits a row gets depends
// on what is added to it and nothing else. `scratch` is [NamedRowsScratch].
// REQUIRES: at(i) is in [0, rows).
template <typename At>
void AddNamedRows(const NamedRows& s, At at, const float* from, float* to,
                  uint32_t* scratch) {
  for (int64_t begin = 0; begin < s.named; begin += kNamedAtOnce) {
    const int64_t count = std::min(kNamedAtOnce, s.named - begin);
    const auto row = [=](int64_t i) { return at(begin + i); };
    named_rows_internal::Buckets buckets;
    buckets.rows = s.rows;
    buckets.size = std::min(s.rows, count);
    bool has_large = false;
    if (s.named > kRowBlock) {  // else there is no scratch memory
      buckets.ends = scratch;
      buckets.members = scratch + buckets.size;
      has_large = buckets.Fill(count, row);
    }
    for (int64_t o = 0; o < s.outer; ++o) {
      const float* const x = from + (o * s.named + begin) * s.width;
      float* const y = to + o * s.rows * s.width;
      for (int64_t i = 0; i < count; ++i) {
        const int64_t to_row = row(i);
        if (has_large && buckets.IsLarge(buckets.Of(to_row))) continue;
        named_rows_internal::AddRow(s.width, x + i * s.width,
                                    y + to_row * s.width);
      }
      if (has_large) {
        named_rows_internal::AddLarge(buckets, row, s.width, x, y);
      }
    }
  }
}

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_NAMED_ROWS_H_
