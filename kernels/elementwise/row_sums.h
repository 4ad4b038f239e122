#ifndef SYNCLINE_KERNELS_ELEMENTWISE_ROW_SUMS_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_ROW_SUMS_H_

// Sums of many rows, element by element, whose error does not grow with their
// number: float32 within a block of rows, fp64 from block to block.

#include <algorithm>
#include <cstdint>

#include "kernels/elementwise/loop.h"

namespace syncline {

// How many rows are added up in float32.
inline constexpr int kRowBlock = 64;

// The sum of rows of `width` elements, in memory of the caller. Thread-
// compatible.
class RowSums {
 public:
  // `block` and `total` are [width], and overwritten.
  RowSums(int64_t width, float* block, double* total)
      : width_(width), block_(block), total_(total) {
    std::fill_n(block_, width_, 0.0f);
  }

  // Adds a row of value(i).
  template <typename Value>
  void Add(Value value) {
    if (rows_ == kRowBlock) Spill();
    ++rows_;
    Emit(width_, /*accumulate=*/true, block_, value);
  }

  // out = the sum, or += with `accumulate`.
  void Write(bool accumulate, float* out) const {
    if (!has_total_) {
      Emit(width_, accumulate, out, [this](int64_t i) { return block_[i]; });
      return;
    }
    Emit(width_, accumulate, out, [this](int64_t i) {
      return static_cast<float>(total_[i] + block_[i]);
    });
  }

 private:
  void Spill() {
    for (int64_t i = 0; i < width_; ++i) {
      total_[i] = (has_total_ ? total_[i] : 0.0) + block_[i];
      block_[i] = 0;
    }
    has_total_ = true;
    rows_ = 0;
  }

  const int64_t width_;
  float* const block_;
  double* const total_;
  int rows_ = 0;  // in the block
  bool has_total_ = false;
};

// The same with memory of its own, for at most kWidth elements.
class ShortRowSums {
 public:
  static constexpr int64_t kWidth = 1024;
  explicit ShortRowSums(int64_t width) : sums_(width, block_, total_) {}
  ShortRowSums(const ShortRowSums&) = delete;
  ShortRowSums& operator=(const ShortRowSums&) = delete;
  RowSums* operator->() { return &sums_; }

 private:
  float block_[kWidth];
  double total_[kWidth];
  RowSums sums_;
};

// sums[j] = the sum of value(i, j) over the columns j of a tile, `rows` rows of
// kWidth elements, i being the element; in blocks, of four partial sums each,
// so that additions need not wait for each other.
template <int64_t kWidth, typename Value>
void SumTile(int64_t rows, Value value, float* sums) {
  constexpr int64_t kParts = 4;
  double totals[kWidth] = {};
  for (int64_t p = 0; p < rows;) {
    const int64_t end = std::min(rows, p + kParts * kRowBlock);
    float parts[kParts][kWidth] = {};
    for (; p + kParts <= end; p += kParts) {
      for (int64_t part = 0; part < kParts; ++part) {
        for (int64_t j = 0; j < kWidth; ++j) {
          parts[part][j] += value((p + part) * kWidth + j, j);
        }
      }
    }
    for (; p < end; ++p) {
      for (int64_t j = 0; j < kWidth; ++j) {
        parts[0][j] += value(p * kWidth + j, j);
      }
    }
    for (int64_t j = 0; j < kWidth; ++j) {
      totals[j] += (parts[0][j] + parts[1][j]) + (parts[2][j] + parts[3][j]);
    }
  }
  for (int64_t j = 0; j < kWidth; ++j) sums[j] = static_cast<float>(totals[j]);
}

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_ROW_SUMS_H_
